"""Coordinators of groups and transactions as pure state machines: events and the time in, records and replies out."""
