"""Values and contracts that every layer may use, and that use no other layer."""
