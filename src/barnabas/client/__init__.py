"""The client: producer, consumer and admin calls on one event loop."""

import logging

# A library prints nothing by itself: its warnings are for whoever sets up logging.
logging.getLogger("barnabas").addHandler(logging.NullHandler())
