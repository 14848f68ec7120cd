"""Approvals and their continuations (C): the public verbs."""

from kernel.approvals.arguments import (
    Canonical,
    Change,
    canonical,
    difference,
    effect_sentence,
    final_arguments,
    masked,
)
from kernel.approvals.continuations import (
    Answer,
    Carried,
    carry_through,
    continuation_page,
    decide_and_carry,
    retry_now,
)
from kernel.approvals.decisions import (
    Decided,
    Decision,
    continuation_id_of,
    decide,
    expire_page,
)
from kernel.approvals.lookup import (
    approvals_of_job,
    continuation_of,
    get_approval,
    last_approved_like,
)
from kernel.approvals.policy import Verdict, check_policy, decide_policy
from kernel.approvals.requests import (
    Grant,
    Question,
    cancel_in_tx,
    consume_in_tx,
    expire_grant_in_tx,
    give_back_in_tx,
    open_in_tx,
    replace_in_tx,
    void_in_tx,
)

__all__ = [
    "Answer",
    "Canonical",
    "Carried",
    "Change",
    "Decided",
    "Decision",
    "Grant",
    "Question",
    "Verdict",
    "approvals_of_job",
    "cancel_in_tx",
    "canonical",
    "carry_through",
    "check_policy",
    "consume_in_tx",
    "continuation_id_of",
    "continuation_of",
    "continuation_page",
    "decide",
    "decide_and_carry",
    "decide_policy",
    "difference",
    "effect_sentence",
    "expire_grant_in_tx",
    "expire_page",
    "final_arguments",
    "get_approval",
    "give_back_in_tx",
    "last_approved_like",
    "masked",
    "open_in_tx",
    "replace_in_tx",
    "retry_now",
    "void_in_tx",
]
