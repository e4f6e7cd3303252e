"""The rules that people wrote, as they count now, and the checks of programs beside them. Contract: flow 9."""

from collections.abc import Iterable, Mapping

from antiphon.domain.classification import NO_COMPARTMENTS, Classification, Compartments
from antiphon.engine.policy_checks import CodeCheck, ask_checks, by_hook
from antiphon.policy.written.fields import Facts, Hook
from antiphon.policy.written.rule_set import NO_RULES, RuleDecision, RuleSet, join_decisions


class RulesInForce:
    """Shared by all that decide in a process. A set is replaced whole; who decides takes one set for one decision."""

    def __init__(self, now: RuleSet = NO_RULES, *, compartments: Compartments = NO_COMPARTMENTS) -> None:
        self.now = now
        self._checks: Mapping[Hook, tuple[CodeCheck, ...]] = {}
        self._compartments = compartments

    def use(self, checks: Iterable[CodeCheck]) -> None:
        """The checks of this program, set once. Raises `Invalid` for two of one id."""
        self._checks = by_hook(checks)

    def replace(self, rules: RuleSet, compartments: Compartments) -> None:
        self.now, self._compartments = rules, compartments

    def asks(self, hook: Hook) -> bool:
        """Whether anything is asked there; if not, no facts need be gathered."""
        return self.now.asks(hook) or hook in self._checks

    def has_checks(self, hook: Hook) -> bool:
        return hook in self._checks

    def decide(self, hook: Hook, facts: Facts) -> RuleDecision:
        """What rules alone say; what a unit of work asks."""
        return self.now.decide(hook, facts)

    async def ask(self, hook: Hook, facts: Facts) -> RuleDecision:
        """What rules and checks say together. Outside units."""
        return join_decisions(self.now.decide(hook, facts), await self.ask_checks(hook, facts))

    async def ask_checks(self, hook: Hook, facts: Facts) -> RuleDecision:
        """What the checks say, where rules were asked already. Outside units."""
        return await ask_checks(self._checks.get(hook, ()), facts)

    def compartments_of(self, made_of: Classification) -> frozenset[str]:
        """Their names; rules name only compartments that existed when they were read."""
        known = self._compartments
        return frozenset(known.names_of(made_of.compartments & known.mask)) if made_of.compartments else frozenset()
