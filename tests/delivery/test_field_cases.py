"""What broke in delivery, dead letters, queues and peers of others; tests that it does not here.

By the numbers of those field cases; names of tests without their `test_`.
"""

from tests.support.field_cases import not_written

CASES: dict[int, str | tuple[str, ...]] = {
    # one admission per dead letter
    1: (
        "a_lost_acknowledgement_is_answered_by_the_same_call",
        "a_living_process_without_an_acknowledgement_asks_again_and_is_told_the_truth",
        "the_answer_tells_how_far_the_first_replay_is",
    ),
    2: "a_lost_acknowledgement_admits_once",
    4: "one_message_many_times_at_once_is_one_notification",
    5: "a_replay_that_fails_makes_a_new_dead_letter_and_the_old_one_stays_resolved",
    7: "while_the_original_is_being_sent_nothing_is_queued",
    8: "one_that_is_still_being_sent_is_refused_with_reason_and_link",
    10: (
        "every_failed_attempt_is_a_row_and_the_last_makes_a_dead_letter",
        "a_replay_that_fails_again_shows_the_whole_lineage",
    ),
    11: "a_replay_queues_what_failed_once_for_its_own_sender",
    13: "a_resolve_that_failed_is_repaired_whatever_became_of_the_replay",
    14: (
        "only_the_one_that_died_is_sent_again_not_the_whole_fan_out",
        "the_child_of_another_recipient_and_the_parent_are_refused",
    ),
    16: (
        "who_may_not_operate_sees_everything_and_changes_nothing",
        "the_server_checks_the_post_again_whatever_the_button_showed",
    ),
    17: (
        "a_second_attempt_has_the_same_id_and_bytes_and_a_new_signature",
        "the_receiver_sees_one_message_id_over_all_replays",
    ),
    19: "nothing_dies_while_everybody_who_is_tried_fails_at_once",
    # many at once, lists
    20: (
        "a_large_set_is_not_frozen_by_who_asks_for_it",
        "four_hundred_are_planned_and_replayed_in_bounded_memory",
    ),
    22: "a_plan_freezes_the_set_and_newcomers_stay_apart",
    23: "pause_resume_and_cancel_hold_in_the_middle",
    25: "what_is_asked_is_what_is_in_the_set",  # a form sends its filter, never ids
    26: ("sixty_of_one_instant_are_all_in_the_set_once", "every_row_is_on_exactly_one_page"),
    28: (
        "a_huge_error_is_cut_by_bytes_and_its_size_is_told",
        "hostile_texts_stay_inside_and_are_found",
    ),
    29: (
        "no_insert_waits_for_a_purge_that_is_not_committed_yet",
        "purges_at_once_beside_inserts_fail_by_no_deadlock_and_take_everything_once",
    ),
    31: (
        "a_time_without_a_zone_is_one_of_the_readers_zone",
        "the_filter_bar_names_its_zone_and_its_values",
    ),
    32: "the_result_counts_are_those_of_the_preview",
    34: "a_count_stops_at_its_cap",
    35: ("no_screen_breaks_a_rule_or_is_cut_off", "hostile_text_is_harmless_in_every_row"),
    # what an attempt proves
    37: ("where_it_fails_decides_what_it_proves", "without_a_readable_answer_it_may_have_arrived"),
    38: (
        "a_call_is_nobodys_to_resolve_before_its_tools_deadline_is_over",
        "a_resolution_of_what_changed_meanwhile_is_refused",
    ),
    40: "a_channel_that_is_not_here_keeps_the_message",
    41: (
        "the_same_attempt_waits_the_same_and_others_do_not_come_together",
        "due_messages_that_piled_up_keep_to_the_slots",
    ),
    # ends: a sender that is lost may have sent, so its attempt counts, as unknown (F2)
    43: (
        "a_drain_that_runs_out_of_time_cancels_nothing",
        "a_lost_sender_leaves_an_unknown_attempt_and_the_next_may_be_a_duplicate",
    ),
    44: "close_waits_for_what_has_begun_and_leaves_the_rest_in_the_table",
    46: "a_signal_in_the_first_second_is_a_clean_exit",
    47: (
        "a_close_ends_in_time_loses_nothing_and_can_be_called_again",
        "a_close_that_runs_out_of_time_names_what_is_left_and_can_be_repeated",
    ),
    49: "leases_are_renewed_until_the_last_job_of_a_closing_kernel_has_ended",
    50: "killed_after_the_commit_of_the_claim_its_attempt_counts_as_unknown",
    52: (
        "a_sender_that_lost_its_lease_writes_nothing",
        "a_worker_that_lost_its_lease_cannot_complete",
    ),
    53: (
        "a_lease_found_lost_by_a_heartbeat_stops_the_run_before_its_next_effect",
        "due_times_and_leases_are_judged_by_the_databases_clock",
    ),
    55: (
        "an_attempt_never_outlives_its_lease",
        "a_sender_that_was_held_up_past_its_lease_sends_nothing",
    ),
    56: (
        "a_job_that_loses_its_workers_is_parked_and_the_queue_moves_on",
        "a_message_that_loses_its_senders_ends_as_a_dead_letter",
    ),
    58: "the_leases_of_all_running_jobs_are_renewed_in_one_transaction",
    59: "one_hanging_peer_holds_nobody_else_up",
    61: "a_message_that_cannot_be_formatted_is_an_attempt_that_says_so",
    62: (
        "a_thousand_exhaustions_at_one_destination_are_one_alert",
        "each_account_has_its_own_window_whatever_the_ids_are",
    ),
    64: "a_failing_alert_never_alerts",
    # the database
    65: (
        "candidates_are_picked_by_one_index_without_sorting",
        "two_senders_take_different_rows_and_no_publisher_waits",
    ),
    67: (
        "no_insert_waits_for_a_purge_that_is_not_committed_yet",
        "a_real_deadlock_is_run_again_and_both_end",
    ),
    68: "purges_at_once_beside_inserts_fail_by_no_deadlock_and_take_everything_once",
    70: "a_heartbeat_that_changes_no_value_is_no_lost_lease",
    71: ("what_databases_would_merge_or_cut_is_no_id", "ids_differ_by_case_on_this_database"),
    73: (
        "words_that_the_database_refuses_do_not_change_the_outcome",
        "an_outcome_that_cannot_be_written_at_first_is_never_sent_again",
    ),
    74: (
        "a_kernel_refuses_to_start_over_sessions_of_three_byte_text",
        "evidence_becomes_ascii_before_it_is_dropped",
    ),
    76: (
        "a_huge_error_is_cut_by_bytes_and_its_size_is_told",
        "no_words_of_a_receiver_keep_an_outcome_from_being_recorded",
    ),
    77: "what_is_due_within_the_second_is_claimed_at_once",
    79: "a_message_whose_transaction_commits_later_is_not_skipped",
    80: "a_row_that_is_committed_late_is_not_passed_by",
    82: ("what_is_no_message_is_refused_at_the_door", "what_is_no_strict_json_is_refused"),
    83: (
        "a_length_over_the_bound_is_refused_before_the_application_starts",
        "an_input_over_its_budget_is_too_large",
    ),
    # peers
    85: ("a_200_is_delivered_whatever_becomes_of_its_body", "a_broken_body_is_noted"),
    86: "a_200_is_delivered_whatever_becomes_of_its_body",
    88: ("a_200_is_delivered_whatever_becomes_of_its_body", "a_bomb_costs_no_more_than_its_budget"),
    89: (
        "a_200_is_delivered_whatever_becomes_of_its_body",
        "an_endless_body_costs_no_more_than_its_budget",
    ),
    91: (
        "a_url_that_could_be_read_two_ways_is_refused",
        "an_address_that_is_not_public_is_refused",
        "one_private_address_among_public_ones_refuses_the_name",
        "a_name_is_resolved_once_and_that_address_is_dialled",
        "every_method_is_refused_on_the_dialled_address",
    ),
    92: "the_environment_adds_nothing",
    94: "without_a_readable_answer_it_may_have_arrived",
    95: ("retry_after_is_clamped_or_unclear", "a_busy_receiver_says_when_to_come_back"),
    97: (
        "hostile_evidence_is_shown_escaped_and_the_list_holds",
        "no_words_of_a_receiver_keep_an_outcome_from_being_recorded",
    ),
    100: (
        "failures_in_a_row_close_a_destination_and_its_dead_letters_say_so",
        "a_closed_destination_is_left_alone_and_loses_no_attempts",
        "when_the_time_is_over_one_process_sends_one_probe",
    ),
    # signatures, time
    101: "the_same_moment_is_signed_alike_in_every_zone",
    103: ("garbage_in_a_header_is_401_and_never_500", "whatever_text_arrives_is_unauthorized"),
    104: (
        "garbage_in_a_header_is_unauthorized_and_no_other_error",
        "an_id_that_could_be_read_two_ways_is_never_signed",
        "while_secrets_rotate_both_sign",
    ),
    # nothing is scheduled by slots: a pass looks at rows, and each row moves once
    109: (
        "two_ticks_at_once_start_one_pass",
        "runs_that_overlap_without_a_common_lock_charge_each_request_once",
    ),
    110: (
        "due_times_and_leases_are_judged_by_the_databases_clock",
        "leases_are_judged_by_the_servers_clock_not_by_ours",
    ),
    112: (
        "attempt_n_waits_for_its_own_place_in_the_schedule",
        "a_failure_is_due_again_and_the_table_says_when",
        "what_is_due_and_not_sent_says_so_and_why",
    ),
}


def test_every_case_has_a_test_that_exists() -> None:
    assert not_written(CASES) == []
