"""What broke in approvals, continuations and jobs of others, and the tests that it does not here.

By the numbers of those field cases; names of tests without their `test_`.
"""

from tests.support.field_cases import not_written

CASES: dict[int, str | tuple[str, ...]] = {
    # one decision
    1: "of_sixteen_deciders_one_wins_and_the_others_learn_its_name",
    2: "approve_and_deny_at_once_leave_one_state",
    4: "the_same_decision_twenty_times_at_once_is_one_decision_and_one_execution",
    5: "a_decision_id_stands_for_one_decision_on_one_approval",
    7: "a_second_question_is_not_answered_by_the_first_decision",
    8: ("a_key_belongs_to_one_approval_of_all_accounts", "two_accounts_use_one_request_id_apart"),
    # a run that pauses and goes on
    10: "three_rounds_of_review_run_three_tool_calls",
    11: "a_job_goes_on_when_the_last_question_is_approved",
    13: "an_approved_job_goes_on_without_generating_its_steps_again",
    14: (
        "a_decision_right_after_the_question_admits_the_job_once",
        "a_job_in_flight_is_left_for_later",
    ),
    # one refusal of several refuses the job here (C8): of three, none is executed
    16: (
        "three_questions_of_one_step_approved_are_three_executions",
        "one_refusal_refuses_the_job_and_voids_what_was_approved",
    ),
    17: "one_refusal_refuses_the_job_and_voids_what_was_approved",  # the auto one ran
    19: "a_stuck_continuation_shows_attempts_error_and_a_retry_for_operators",
    20: (
        "a_failure_waits_longer_each_time_up_to_a_limit",
        "an_approval_beside_a_refusal_admits_nothing_in_any_order",
    ),
    22: "an_invariant_of_jobs_bites",
    23: (
        "no_verb_updates_the_coordinates_of_a_continuation",
        "coordinates_that_somebody_changed_in_the_table_admit_nothing",
    ),
    25: "each_decision_shows_what_the_call_then_did",
    26: "a_job_waits_exactly_when_its_questions_are_stored",
    28: "one_that_always_fails_never_keeps_the_others_waiting",
    29: "two_maintenance_processes_share_the_rows_and_lose_none",
    # calls
    31: (
        "killed_with_the_tools_answer_in_hand_the_call_is_uncertain_and_was_made_once",
        "an_uncertain_call_is_resolved_with_a_note_and_the_job_goes_on",
    ),
    32: "killed_after_the_calls_dispatch_was_committed_it_is_uncertain_though_nothing_was_sent",
    34: "each_decision_shows_what_the_call_then_did",
    35: "the_same_call_again_in_a_later_step_is_a_new_question",
    37: ("defaults_are_part_of_what_is_approved", "the_approved_bytes_are_the_bytes_that_leave"),
    38: ("only_the_exact_words_decide", "a_missing_decision_decides_nothing"),
    40: "a_model_that_asks_in_circles_ends_without_a_storm_of_questions",
    # arguments
    41: "missing_null_and_empty_arguments_are_three_things",
    43: (
        "the_order_of_keys_and_the_spacing_change_nothing",
        "lists_keep_their_order_and_objects_have_none",
    ),
    44: "keys_stand_in_code_point_order_on_every_host",
    46: "a_number_that_became_a_text_is_another_call",
    # time, cancel, change meanwhile
    47: (
        "a_policy_that_became_stricter_asks_first",
        "who_lost_the_role_while_the_form_was_open_decides_no_more",
    ),
    49: "a_grant_that_was_approved_in_time_is_not_used_too_late",
    50: (
        "a_late_decision_finds_the_question_expired_and_nothing_runs",
        "a_question_whose_time_is_over_says_so",
    ),
    52: "a_grant_that_expired_before_its_call_sends_nothing_and_says_so",
    53: "a_cancelled_job_takes_its_question_with_it_and_a_late_approval_is_refused",
    55: "a_cancelled_question_is_never_approved",
    56: "time_spent_waiting_for_a_person_is_no_run_time",
    58: (
        "the_window_is_counted_by_the_database_in_utc_whatever_the_zone",
        "a_local_day_has_its_true_length_in_utc",
    ),
    59: "the_first_pass_after_a_stop_expires_what_became_late",
    61: "a_database_that_restarts_in_mid_pass_loses_no_row",
    62: "a_row_that_another_process_took_is_left_to_it",
    64: "a_job_that_loses_its_workers_is_parked_and_the_queue_moves_on",
    # what people see
    65: (
        "an_argument_of_200_kilobytes_is_kept_whole",
        "a_long_argument_is_whole_before_the_button_that_approves",
    ),
    67: (
        "a_hidden_code_point_is_named",
        "what_hides_in_a_text_is_named_in_the_mail",
        "a_chat_message_arrives_and_what_does_not_arrive_says_what_it_proves",
        "shown_values_hold_no_invisible_characters",
        "invisible_characters_are_left_alone_in_bytes_and_hash",
    ),
    68: (
        "secrets_are_masked_and_still_told_apart",
        "secrets_in_arguments_are_masked_wherever_they_are_shown",
        "a_question_and_its_decision_are_told_with_a_link_and_without_secrets",
    ),
    70: (
        "a_poll_answers_204_until_somebody_decides_and_then_the_new_state",
        "who_was_first_is_named_and_the_typed_note_stays",
    ),
    71: "the_codes_of_a_conflict_are_told_apart",
    73: "the_badge_counts_only_what_somebody_could_decide_now",
    74: (
        "a_page_is_served_by_one_index_without_sorting",
        "a_list_costs_the_same_with_one_row_and_with_many_and_reads_no_arguments",
    ),
    # who may
    76: "another_accounts_approval_does_not_exist",
    77: ("nobody_gets_in", "one_scope_opens_an_address_and_no_other_does", "who_may_act"),
    79: (
        "a_revoked_approver_decides_no_more",
        "who_lost_the_role_while_the_form_was_open_decides_no_more",
    ),
    80: ("one_scope_opens_an_address_and_no_other_does", "who_may_act"),
    82: (
        "when_one_of_the_three_fails_none_is_there",
        "every_invariant_holds_and_ledger_and_audit_keep_every_row",
    ),
    83: ("every_decision_has_a_named_decider_of_a_known_kind", "the_kind_of_decider_is_recorded"),
    # links and signed messages
    85: ("looking_at_any_link_decides_nothing", "a_look_at_an_address_never_decides"),
    86: (
        "garbage_in_a_header_is_401_and_never_500",
        "a_header_that_is_missing_or_came_twice_is_401",
    ),
    88: "each_attempt_is_signed_anew_under_one_id_over_the_same_bytes",
    89: ("both_sides_of_the_window_are_bounded", "receipts_outlive_every_signature"),
    91: "another_accounts_key_decides_nothing",
    92: "a_link_that_an_earlier_version_sent_still_opens_its_page",
    94: "every_documented_line_works_as_it_stands",
}


def test_every_case_has_a_test_that_exists() -> None:
    assert not_written(CASES) == []
