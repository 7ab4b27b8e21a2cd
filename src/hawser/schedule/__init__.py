"""Schedules: when they have their ticks, and what becomes of them. Pure: no clock and no store is read here."""
