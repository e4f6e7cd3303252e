"""AgentDojo's tasks and injections through the real loop, log and worker, with scripted models. Contract: flow 4."""
