"""What `kvoracle capacity` knows: sizes, models, the source document's figures."""
