"""Tests of the basket."""
