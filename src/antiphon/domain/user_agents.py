"""Names browsers by their `User-Agent` header."""

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
"""Each comes before systems whose word its header also contains."""


def browser_name(user_agent: str) -> str:
    """A name such as "Firefox on Windows", made only of our own words; "A browser" if unknown."""
    browser = next((name for word, name in _BROWSERS if f"{word}/" in user_agent or f"{word}A/" in user_agent), None)
    system = next((name for word, name in _SYSTEMS if word in user_agent), None)
    return (browser or "A browser") + (f" on {system}" if system else "")
