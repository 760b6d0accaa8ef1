"""Redis: speed, never truth. Everything here may vanish at any moment and nothing is lost or exceeded."""
