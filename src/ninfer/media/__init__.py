"""Empty in this version: images and video come here."""
