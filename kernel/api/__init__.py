"""The JSON door: parse, one verb, render."""
