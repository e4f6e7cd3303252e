"""`antiphon demo`: a story in one terminal, told by the logs of a real gateway."""
