"""Every numbered rule of the contract, in short, and whether it is built. Gaps are data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    summary: str
    open: str | None = None
    """Why no test may claim it yet; None once it is built, wholly or in part."""
    remaining: str | None = None
    """What is still missing of a rule that is built in part."""


TOOLS = "comes with the session tools"
SENDS = "comes with exchanges between sessions"
PEOPLE = "comes with people and tokens"
FLOW = "comes with policies, releases and the audit"
PEERS = "comes with peers"
WORLD = "comes with answers that always arrive"
OTHERS = "comes with runners and harnesses of others"


REQUIREMENTS = {
    # 0. Answers
    "answers:1": Requirement("A tool answers an object, failures with status, code and advice; it never raises."),
    "answers:2": Requirement(
        "What is hidden and what is missing get one identical answer from identical work.",
    ),
    "answers:3": Requirement("Unknown parameters, and naming oneself in arguments, are refused."),
    "answers:4": Requirement("Wire times are whole milliseconds; durations carry their unit in the name."),
    "answers:5": Requirement("HTTP errors are one JSON shape with the listed status codes."),
    "answers:6": Requirement(
        "A refused or failed act leaves nothing behind, save its count and the audit row of the refusal.",
        remaining="acts that fail, one by one",
    ),
    # 1. Keys
    "keys:1": Requirement("Keys have the listed forms; old short forms are canonicalised."),
    "keys:2": Requirement("A key's kind follows from its canonical text."),
    "keys:3": Requirement("`global` and `unknown` are never keys; `current` and `parent` are relative."),
    "keys:4": Requirement("A key is parsed once, strictly, and never repaired; URLs encode it once more."),
    "keys:5": Requirement(
        "`session.dmScope` decides who shares a direct session; links fold one person's peers.",
    ),
    "keys:6": Requirement(
        "A key is an address with one current incarnation; seq counts over resets and deletion.",
    ),
    "keys:7": Requirement(
        "Session ids are `<namespace>:<rest>`; opening by id makes the key; a reset keeps the namespace.",
    ),
    # 2. Sessions
    "sessions:1": Requirement(
        "A session's facts are maintained columns; lists read no transcript.",
    ),
    "sessions:2": Requirement(
        "Status is persisted; inactive sessions are hidden and come back when used.",
    ),
    "sessions:3": Requirement(
        "Opening creates or reopens, keeping the source, merging metadata, starting an incarnation once.",
    ),
    "sessions:4": Requirement(
        "A post is one transaction, idempotent by message id, and names the run that answers.",
    ),
    "sessions:5": Requirement("Appending stores and wakes readers but never runs; updatedAt never goes back."),
    "sessions:6": Requirement(
        "A reset ends the runs and starts a new incarnation at once; late results stay with the old.",
    ),
    "sessions:7": Requirement(
        "Only quiet direct sessions are deleted; a race with a post has one winner.",
    ),
    "sessions:8": Requirement(
        "A fork copies the log up to a seq; pruned ranges are refused.",
    ),
    # 3. Events
    "events:1": Requirement(
        "Events are past facts with seq, time, actor and provenance; unknown types are kept.",
        remaining="types of releases are written as those come",
    ),
    "events:2": Requirement(
        "A message from another session is marked as such and fenced as data for the model.",
    ),
    "events:3": Requirement("A transcript message has one wire shape; one step is one message."),
    # 4. Runs
    "runs:1": Requirement(
        "One run of a session at a time, in order; many sessions at once up to a limit.",
    ),
    "runs:2": Requirement(
        "The run id is returned before the model is called; the reply is stored on the run; every step's text arrives."
    ),
    "runs:3": Requirement("Waiting reads the ledger, and survives reconnects and restarts; its timeout ends only it."),
    "runs:4": Requirement(
        "A busy session enqueues, collects, steers, interrupts or rejects, per principal.",
    ),
    "runs:5": Requirement(
        "Cancelling is idempotent, keeps partial text and frees the session once unwound.",
    ),
    "runs:6": Requirement(
        "Runs have limits, agents and persons a daily cap, and fifteen tool failures in a row end a run.",
    ),
    "runs:7": Requirement(
        "A run acts with the rights of whoever posted its message.",
    ),
    "runs:8": Requirement(
        "After a crash runs resume from the log; unfinished calls are not repeated unless idempotent.",
    ),
    "runs:9": Requirement(
        "Near the context limit older turns are summarised; the log keeps everything.",
    ),
    # 5. Visibility
    "visibility:1": Requirement("Sessions see themselves, their tree, their agent's or all sessions."),
    "visibility:2": Requirement("A sandbox only narrows visibility."),
    "visibility:3": Requirement("Access across agents needs `all`, the switch, and both agents allowed."),
    "visibility:4": Requirement("Lists are filtered before limit and count; failing to decide denies."),
    "visibility:5": Requirement("Each session tool can be narrowed per agent."),
    "visibility:6": Requirement(
        "A child may always send to its requester.",
    ),
    # 6. Tools
    "tools:1": Requirement(
        "The caller is injected; which agents and sub-agents get session tools; calls from outside.",
        remaining="`tools.subagents.tools` as `{allow, deny}`",
    ),
    "list:1": Requirement("sessions_list pages newest first within its limits and filters."),
    "list:2": Requirement(
        "A row has the listed fields; absent values are absent.",
        remaining="levels that commands set, and what only people and programs are shown",
    ),
    "list:3": Requirement("A row's channel is recorded, last used, internal or unknown."),
    "list:4": Requirement("Messages in a list are without tool results, cut and redacted."),
    "list:5": Requirement("Cursors are sealed with a key of the home; any other text is `invalid_cursor`."),
    "history:1": Requirement("A history page has the newest messages in order, with seq and flags."),
    "history:2": Requirement("Tool results are hidden unless asked for; cursors skip nothing and stay stable."),
    "history:3": Requirement("A page is bounded, oldest dropped first."),
    "search:1": Requirement("sessions_search finds all words of any script, newest first, in readable text."),
    "send:1": Requirement(
        "A send names a key or a label, and opens an agent's main; an ambiguous label and oneself are errors.",
    ),
    "send:2": Requirement("A send waits up to its timeout; a late reply still arrives."),
    "send:3": Requirement(
        "The reply is that of the very run, and enters the requester once.",
        remaining="releases of a withheld reply come with releases",
    ),
    "send:4": Requirement("The target knows that another session asks; rights are those of the chain's start."),
    "send:5": Requirement("The parties take turns replying until one skips or the limit is reached."),
    "send:6": Requirement("The target may announce once to its own channel."),
    "send:7": Requirement("Cycles of waiting are answered at once; chains are limited."),
    "send:8": Requirement("An exchange survives a restart at any point."),
    "spawn:1": Requirement("Spawning never blocks and names run and child."),
    "spawn:2": Requirement("Spawn checks come in a fixed order; a failure leaves nothing behind."),
    "spawn:3": Requirement("A child's time limit aborts it and is announced."),
    "spawn:4": Requirement(
        "Threads, cleanup and archiving of children.",
    ),
    "spawn:5": Requirement("Attachments are checked at spawning and written into the child's workspace."),
    "spawn:6": Requirement(
        "A child runs here or in an external ACP harness.",
        remaining="acp comes later; it is answered unsupported",
    ),
    "spawn:7": Requirement("A child's result is recorded exactly once, then announced or continued."),
    "spawn:8": Requirement("Parents wait, yield and govern children instead of polling."),
    "agents_list:1": Requirement("agents_list tells which agents may be spawned, the requester first."),
    "session_status:1": Requirement("session_status tells one session's state, gated like a read."),
    "message:1": Requirement(
        "message sends to a channel past hooks, send policy and flow.",
        remaining="hooks come with policies",
    ),
    "summarize:1": Requirement("summarize gives a summary with the join of its inputs."),
    "simulate:1": Requirement("simulate_tool_call answers by the enforcing pipeline, without effects."),
    "foreign_tools:1": Requirement(
        "Python functions and MCP servers are tools with declared effects under the same policy.",
        remaining="hooks come with policies; effects proposed and confirmed, and labels of servers",
    ),
    # 7. Send policy
    "send_policy:1": Requirement(
        "Override, denies, allows and default decide, in this order; `group` fits channels.",
    ),
    "send_policy:2": Requirement("Only the owner's `/send` and patches set the override."),
    "send_policy:3": Requirement(
        "It is enforced in chats, deliveries and announces, and again at claiming, by the place that is addressed.",
    ),
    # 8. Groups
    "groups:1": Requirement("Owners and mentions trigger a run in groups that are allowed; the rest is stored."),
    "groups:2": Requirement("The model sees names, and which owner messages are not for it."),
    "groups:3": Requirement("Silence markers are stripped from replies, never from the log."),
    "groups:4": Requirement("A run with a place never ends in silence, and one row says what its place got."),
    "groups:5": Requirement("What belongs together is one message with context; a forward is somebody else's words."),
    "groups:6": Requirement("The instructions end with a line that says when and where the agent speaks.", WORLD),
    # 9. Approvals
    "approvals:1": Requirement(
        "A call that needs approval is recorded and asked for days, then is denied.",
    ),
    "approvals:2": Requirement("It does not hold its session; the decision queues the continuation."),
    "approvals:3": Requirement(
        "A person decides once, always or deny, for exactly the recorded call.",
        remaining="`always` on untrusted questions comes with decisions by integrity",
    ),
    "approvals:4": Requirement(
        "Runs without a person ask or are denied; one step is one request.",
    ),
    "approvals:5": Requirement(
        "A call from outside that needs a yes is pending, runs once decided, and repeats safely."
    ),
    # 10. Checkpoints
    "checkpoints:1": Requirement("Introspection runs for five reasons over events since its last success."),
    "checkpoints:2": Requirement(
        "It updates memory, working memory and the description; memory belongs to a person or group."
    ),
    # 11. Access
    "access:1": Requirement(
        "Owners see all, others the sessions that they take part in.",
        remaining="peers come with that part",
    ),
    "access:2": Requirement(
        "Tokens are hashed, scoped, confined, expiring and revocable.",
    ),
    "access:3": Requirement(
        "People are matched by platform ids, paired by code and linked by code.",
    ),
    "access:4": Requirement(
        "A role says what a person, and every run that the person's words began, may do.",
    ),
    "access:5": Requirement("Every operation stands in one table; one function decides below all transports."),
    # 12. Information flow
    "flow:1": Requirement("Level, compartments and integrity classify; flow is ≤ and ⊆; parsing is exact."),
    "flow:2": Requirement(
        "Events carry what they were made of; taint rises by the session's own act.",
        remaining="an event keeps the rank of its speaker then, not the one of now",
    ),
    "flow:3": Requirement(
        "Readers see only what flows to them; the rest does not exist.",
    ),
    "flow:4": Requirement(
        "Sending down is refused; writing up blindly is always accepted.",
        remaining="in an untrusted context nothing is released",
    ),
    "flow:5": Requirement("A child starts at its parent's taint, with at most its clearance."),
    "flow:6": Requirement(
        "A result above the parent becomes a notice, to be accepted or released.",
    ),
    "flow:7": Requirement(
        "What leaves must flow to the meet of channel and recipient.",
    ),
    "flow:8": Requirement(
        "Derived data carries the join of its inputs.",
    ),
    "flow:9": Requirement("Fixed checks, then rules as data, then code hooks outside units; rules only tighten."),
    "flow:10": Requirement("Effects under untrusted content need approval by default."),
    "flow:11": Requirement("Only the owner declassifies, exact bytes to one destination, once."),
    "flow:12": Requirement("Events are chained by hashes, other decisions in a chain of their own; both verify."),
    "flow:13": Requirement("Data above an observer changes nothing that the observer sees."),
    "flow:14": Requirement(
        "Presets give people this without the words; refusals are explained plainly.",
    ),
    # 13. Gateway
    "gateway:1": Requirement("History pages over HTTP, and SSE that follows exactly once from a cursor."),
    "gateway:2": Requirement("The WebSocket speaks req, res and event frames with the listed methods."),
    "gateway:3": Requirement("Subscribing registers first, then gives the snapshot; hidden is not_found."),
    "gateway:4": Requirement(
        "REST has the listed operations and shapes.",
    ),
    "gateway:5": Requirement("It listens locally, checks Host and Origin, bounds bodies, drops slow readers."),
    "gateway:6": Requirement(
        "The page is entered by a single-use code that becomes a strict cookie and a page secret."
    ),
    # 14. Channels
    "channels:1": Requirement(
        "Adapters take inbound at most once and send outbound at least once.",
        remaining="several processes on one account of Matrix with keys, or of Delta Chat",
    ),
    "channels:2": Requirement("A routes table maps places to agents and sessions."),
    "channels:3": Requirement(
        "Chats have the listed commands.",
        remaining="`/session switch #id` to an earlier conversation",
    ),
    "channels:4": Requirement("Commands are standalone and of authorised senders; batches are all or none."),
    # 15. Tasks
    "tasks:1": Requirement(
        "A task fires at most once a slot and delivers once: to a chat as a record that starts no run, to its maker, "
        "to a group or to the log.",
    ),
    "tasks:2": Requirement(
        "Errors back off; a slot that made no step is tried again; tasks are changed only where they belong."
    ),
    # 16. Configuration
    "config:1": Requirement(
        "One file and variables configure all; errors name the line and the nearest name.",
        remaining="reloading, and the settings of parts not built yet",
    ),
    # 17. Command line and Python
    "cli:1": Requirement(
        "The command line has the listed commands, for people and as JSON.",
        remaining="setup, connect, who, tool, agents, skills, policy, audit, import, service, sessions export",
    ),
    # 18. First start
    "first_start:1": Requirement("`antiphon serve` works with no configuration, and alone on its home."),
    "first_start:2": Requirement("The offline and scripted models are deterministic."),
    "first_start:3": Requirement("The same scripts run over the wire of a fake provider."),
    # 19. Peers
    "peers:1": Requirement("A coding agent that connects gets a session of its own and keeps it.", PEERS),
    "peers:2": Requirement("Its runs are executed by it, under the same rules.", PEERS),
    "peers:3": Requirement("How it is reached is shown truthfully, with receipts.", PEERS),
    "peers:4": Requirement("Connecting is off by default, and can be undone.", PEERS),
    "peers:5": Requirement("Permission prompts that a client relays become approvals, decided by persons only.", PEERS),
    # 20. Agents and clients of others
    "foreign_agents:1": Requirement("A runner of somebody else carries out runs with every property of our own."),
    "foreign_agents:2": Requirement("ACP harnesses run as agents, and editors reach sessions as ACP agents."),
    "foreign_agents:3": Requirement(
        "OpenAI's forms of requests, within a person's rights.", "not yet, by the contract"
    ),
    "foreign_agents:4": Requirement("Exporters are sinks with a clearance.", "not yet, by the contract"),
    "foreign_agents:5": Requirement("Skills are named per agent and trusted by hash."),
    "foreign_agents:6": Requirement("The shipped tools read pages, search the web, read files and run skills."),
}
