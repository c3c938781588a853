"""Bytes in, bytes out: the server's and the client's end of a connection."""
