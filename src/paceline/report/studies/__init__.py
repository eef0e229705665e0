"""Pages of studies: of scaling, and of how well a training learns."""
