"""Record batches (magic 2): header views, the record codec, compression, columns."""
