"""The use cases that edges call, in one bundle."""

from dataclasses import dataclass

from antiphon.clock import Clock
from antiphon.domain.cursors import Cursors
from antiphon.domain.home_key import HomeKey
from antiphon.domain.ids import Ids
from antiphon.engine.activities import Activities
from antiphon.engine.buckets import Buckets
from antiphon.engine.credentials import Credentials
from antiphon.engine.deliveries import Deliveries
from antiphon.engine.exchanges import Exchanges
from antiphon.engine.forks import Forks
from antiphon.engine.health import Health
from antiphon.engine.history import History
from antiphon.engine.inbox import Inbox
from antiphon.engine.ownership import Ownership
from antiphon.engine.resets import Resets
from antiphon.engine.rules import Rules
from antiphon.engine.runs import Runs
from antiphon.engine.search import Search
from antiphon.engine.sessions import Sessions
from antiphon.engine.signin import SignIn
from antiphon.engine.tokens import Tokens
from antiphon.engine.trees import Trees
from antiphon.engine.views import Views
from antiphon.engine.waits import Waits
from antiphon.feed.follow import Hub


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    rules: Rules
    clock: Clock
    ids: Ids
    home_key: HomeKey
    cursors: Cursors
    sessions: Sessions
    inbox: Inbox
    runs: Runs
    resets: Resets
    forks: Forks
    history: History
    search: Search
    views: Views
    trees: Trees
    activities: Activities
    exchanges: Exchanges
    deliveries: Deliveries
    waits: Waits
    hub: Hub
    sign_in: SignIn
    tokens: Tokens
    buckets: Buckets
    ownership: Ownership
    credentials: Credentials
    health: Health

    def let_go(self) -> None:
        """Ends what follows and what waits, so that a server can stop."""
        self.hub.close()
        self.waits.close()
