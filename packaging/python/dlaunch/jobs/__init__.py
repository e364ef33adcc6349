"""Jobs that a program starts by itself: run(), and the pytest plugin."""
