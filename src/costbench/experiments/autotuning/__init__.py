"""Autotuners at work: compared on test programs by the stage `autotune`, and on a program of a user."""
