"""Approvals: arguments, policy, questions, decisions, continuations."""
