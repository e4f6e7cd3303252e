"""The customers of the service: shops, each with its orders. In yours it is a database."""

import json
from pathlib import Path
from typing import TypedDict


class Order(TypedDict):
    number: str
    note: str


class Shop:
    """The orders of one tenant, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_order(self, number: str) -> str:
        """Looks up an order by its number; returns its note."""
        for order in self._orders():
            if order["number"] == number:
                return f"Order {number}: {order['note']}"
        return f"There is no order {number}."

    def refund(self, number: str) -> str:
        """Pays an order back. Nobody can undo that."""
        with (self._folder / "refunds.txt").open("a", encoding="utf-8") as refunds:
            refunds.write(f"{number}\n")
        return f"Order {number} is refunded."

    def _orders(self) -> list[Order]:
        return json.loads((self._folder / "orders.json").read_text("utf-8"))


class Shops:
    """All tenants: `data/TENANT/orders.json`, and who has which token."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._tokens: dict[str, str] = json.loads((data / "tokens.json").read_text("utf-8"))

    @property
    def names(self) -> list[str]:
        return sorted(self._tokens.values())

    def of(self, tenant: str) -> Shop:
        return Shop(self._data / tenant)

    def tenant_of(self, token: str) -> str | None:
        return self._tokens.get(token)
