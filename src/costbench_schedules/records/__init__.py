"""Recorded measurements of schedules: tables of whole sub-spaces, their card, and files of other tuners."""
