"""One module a pipeline stage: read its sections, call the library, write its folder."""
