"""What channels bring in, each in one unit: who it is, whether they may write, and to which session.

Only after the unit has committed may the platform be told that the message was taken in. The same message again gets
its first answer, even if its chat was routed elsewhere meanwhile. Contract: channels 1, access 3, groups 1.
"""

from collections import OrderedDict

from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.codes import RANDOM_DIGITS, code_from_hex
from antiphon.domain.errors import AntiphonError, Limited
from antiphon.domain.ids import Ids, MessageId, RunId
from antiphon.domain.inbound import ButtonPress, ChangeKind, ChatChange, Inbound, Sender
from antiphon.domain.keys import SessionKey
from antiphon.domain.session import DeliveryContext, Source
from antiphon.engine.chats.accounts import Lease, LeaseLost
from antiphon.engine.chats.chat import account_of
from antiphon.engine.chats.entry import Drawn, target_of
from antiphon.engine.chats.groups import ask_owners, find_group, leave_group, move_group
from antiphon.engine.chats.take_in import Moved, TakeIn, arrival_of, foresee, hold, shown, take_in
from antiphon.engine.chats.uploads import Uploads
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.inbox import Posted
from antiphon.engine.sessions.sessions import Sessions
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.store import arrivals
from antiphon.store.arrivals import Outcome
from antiphon.store.database import Database, Transaction
