"""`python -m tests.surface`: stores what users see of the program now. Look at the difference before you keep it."""

from tests.surface.texts import STORED, TEXTS

if __name__ == "__main__":
    for name, make in TEXTS.items():
        (STORED / name).write_text(make(), "utf-8")
