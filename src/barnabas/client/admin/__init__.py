"""Administration of a cluster: one module and one class per noun, each made from a client; `Admin` has them all."""

from barnabas.client.admin.admin import Admin

__all__ = ["Admin"]
