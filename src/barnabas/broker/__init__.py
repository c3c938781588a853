"""One broker process: the composition root, dispatch, and a handler per API key."""
