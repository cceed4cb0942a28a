"""Pure tensor functions on grids: the vocabulary from which the systems' equations are written."""
