"""Empty in this version: grammars and the masks that they make of a vocabulary come here."""
