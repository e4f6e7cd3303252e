"""All use cases that edges call, in one bundle."""

from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.cursors import Cursors
from antiphon.domain.home_key import HomeKey
from antiphon.domain.ids import Ids
from antiphon.engine.access.buckets import Buckets
from antiphon.engine.access.compartments import HomeCompartments
from antiphon.engine.access.credentials import Credentials
from antiphon.engine.access.names import PersonNames
from antiphon.engine.access.ownership import Ownership
from antiphon.engine.access.people import People
from antiphon.engine.access.signin import SignIn
from antiphon.engine.access.tokens import Tokens
from antiphon.engine.approvals.standing import StandingApprovals
from antiphon.engine.approvals.tool_reviews import ToolReviews
from antiphon.engine.approvals.trusting import TrustedContents
from antiphon.engine.audit.audits import Audits
from antiphon.engine.audit.trail import Trail
from antiphon.engine.chats.commands import ChatCommands
from antiphon.engine.chats.groups import Groups
from antiphon.engine.chats.linking import Links
from antiphon.engine.chats.nodes import Nodes
from antiphon.engine.chats.pairing import Pairings
from antiphon.engine.chats.program_chats import ProgramChats
from antiphon.engine.chats.routing import Routes
from antiphon.engine.checkpoints.checkpoints import Checkpoints
from antiphon.engine.deliveries.deliveries import Deliveries
from antiphon.engine.deliveries.replies import Replies
from antiphon.engine.exchanges.send import Exchanges
from antiphon.engine.ledger.waits import Waits
from antiphon.engine.memory.people import Notes
from antiphon.engine.overview import Overviews
from antiphon.engine.rules import Rules
from antiphon.engine.runs.cancel import Runs
from antiphon.engine.runs.code_agents import CodeAgents
from antiphon.engine.runs.decisions import Approvals
from antiphon.engine.schedules.tasks import Tasks
from antiphon.engine.sessions.forks import Forks
from antiphon.engine.sessions.inbox import Inbox
from antiphon.engine.sessions.resets import Resets
from antiphon.engine.sessions.senders import Senders
from antiphon.engine.sessions.sessions import Sessions
from antiphon.engine.skills.skills import Skills
from antiphon.engine.views.activities import Activities
from antiphon.engine.views.contents import ContentsOfSessions
from antiphon.engine.views.costs import Costs
from antiphon.engine.views.history import History
from antiphon.engine.views.incarnations import Incarnations
from antiphon.engine.views.refusals import Refusals
from antiphon.engine.views.run_trees import RunTrees
from antiphon.engine.views.search import Search
from antiphon.engine.views.trees import Trees
from antiphon.engine.views.views import Views
from antiphon.engine.work.health import Health
from antiphon.engine.work.measures import Measures
from antiphon.engine.work.rule_reloads import RuleReloads
from antiphon.feed.changes import Changes
from antiphon.feed.follow import Hub


class Services(Struct, frozen=True, kw_only=True):
    rules: Rules
    clock: Clock
    ids: Ids
    home_key: HomeKey
    cursors: Cursors
    sessions: Sessions
    inbox: Inbox
    senders: Senders
    commands: ChatCommands
    program_chats: ProgramChats
    nodes: Nodes
    pairings: Pairings
    groups: Groups
    routes: Routes
    links: Links
    runs: Runs
    approvals: Approvals
    standing_approvals: StandingApprovals
    trusted_contents: TrustedContents
    tool_reviews: ToolReviews
    skills: Skills
    notes: Notes
    tasks: Tasks
    resets: Resets
    checkpoints: Checkpoints
    forks: Forks
    history: History
    incarnations: Incarnations
    search: Search
    views: Views
    trees: Trees
    activities: Activities
    contents: ContentsOfSessions
    costs: Costs
    run_trees: RunTrees
    overviews: Overviews
    exchanges: Exchanges
    deliveries: Deliveries
    replies: Replies
    waits: Waits
    hub: Hub
    changes: Changes
    sign_in: SignIn
    tokens: Tokens
    people: People
    names: PersonNames
    code_agents: CodeAgents
    compartments: HomeCompartments
    written: RuleReloads
    refusals: Refusals
    buckets: Buckets
    ownership: Ownership
    credentials: Credentials
    health: Health
    measures: Measures
    audits: Audits
    trail: Trail

    def let_go(self) -> None:
        """Ends followers and waits, so that a server can stop."""
        self.hub.close()
        self.waits.close()
