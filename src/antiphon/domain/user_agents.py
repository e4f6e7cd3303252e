"""What a browser is called, by how it names itself."""

_BROWSERS = (
    ("Edg", "Edge"),
    ("OPR", "Opera"),
    ("Vivaldi", "Vivaldi"),
    ("SamsungBrowser", "Samsung Internet"),
    ("Firefox", "Firefox"),
    ("FxiOS", "Firefox"),
    ("HeadlessChrome", "Chromium"),
    ("Chromium", "Chromium"),
    ("CriOS", "Chrome"),
    ("Chrome", "Chrome"),
    ("Safari", "Safari"),
)
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("CrOS", "ChromeOS"),
    ("Macintosh", "macOS"),
    ("Linux", "Linux"),
)
"""Each before those whose word its header holds, too."""


def browser_name(user_agent: str) -> str:
    """Such as "Firefox on Windows", made of words of our own; "A browser" where nothing is known."""
    browser = next((name for word, name in _BROWSERS if f"{word}/" in user_agent or f"{word}A/" in user_agent), None)
    system = next((name for word, name in _SYSTEMS if word in user_agent), None)
    return (browser or "A browser") + (f" on {system}" if system else "")
