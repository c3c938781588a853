"""ApiVersions 0-4: which APIs and versions are served.

A version that we do not know is answered in version 0 with UNSUPPORTED_VERSION (see dispatch), so that a newer client
can step down. Features are named only when they work: clients change their behaviour on them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from barnabas.broker.handlers import SERVED
from barnabas.cluster.brokers import SUPPORTED_FEATURES
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(request: ApiVersionsRequest | None, context: Context) -> ApiVersionsResponse:
    if request is not None and context.version >= 3:
        for name in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE_NAME.fullmatch(name):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    image = context.broker.metadata.image
    return ApiVersionsResponse(
        api_keys=[ApiVersion(key, lowest, highest) for key, (lowest, highest) in sorted(SERVED.items())],
        supported_features=[
            SupportedFeatureKey(name, versions.min_version, versions.max_version)
            for name, versions in SUPPORTED_FEATURES.items()
        ],
        finalized_features_epoch=image.index,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in image.features.items()],
    )
