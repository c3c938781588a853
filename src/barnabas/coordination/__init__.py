"""Metadata stores: one small contract, and what meets it."""
