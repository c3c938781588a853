"""Features of the cluster (KIP-584): which levels its brokers support, which are in force, and changing those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.outcomes import refusal, settled
from barnabas.client.routes import ANY, CONTROLLER, ask, ask_one
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k18_api_versions import ApiVersionsRequest
from barnabas.wire.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest

_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    min_version: int
    max_version: int
    """The levels that the broker supports."""
    level: int
    """The one in force; 0 is off."""


class UpdateType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """Only if no metadata is lost by it."""
    UNSAFE_DOWNGRADE = 3


class Features:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe(self) -> dict[str, Feature]:
        """The features that the brokers know, by name."""
        from barnabas import __version__

        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        return await ask_one(self._client, ANY, None, request, _read_features)

    async def update(
        self, levels: Mapping[str, int], *, type: UpdateType = UpdateType.UPGRADE, validate_only: bool = False
    ) -> None:
        """Put other levels in force; all of them or none."""

        def request(names: Iterable[str]) -> UpdateFeaturesRequest:
            downgrade = type is not UpdateType.UPGRADE
            updates = [FeatureUpdateKey(name, levels[name], downgrade, type) for name in names]
            return UpdateFeaturesRequest(_TIMEOUT_MS, updates, validate_only)

        def read(response: Any) -> dict[str, KafkaError | None]:
            if response.error_code:
                raise refused(response.error_code, "cannot update features", response.error_message)
            answers: dict[str, KafkaError | None] = dict.fromkeys(levels)  # from v2 on only failures are told
            for found in response.results:
                what = f"cannot update feature {found.feature!r}"
                answers[found.feature] = refusal(found.error_code, what, found.error_message)
            return answers

        settled(await ask(self._client, CONTROLLER, levels, request, read))


def _read_features(response: Any) -> dict[str, Feature]:
    if response.error_code:
        raise refused(response.error_code, "cannot describe features")
    levels = {found.name: found.max_version_level for found in response.finalized_features}
    return {
        found.name: Feature(found.name, found.min_version, found.max_version, levels.get(found.name, 0))
        for found in sorted(response.supported_features, key=lambda found: found.name)
    }
