"""What broke in model requests, metering and prices of others, and the tests that it does not here.

By the numbers of those field cases; names of tests without their `test_`.
"""

from tests.support.field_cases import not_written

CASES: dict[int, str | tuple[str, ...]] = {
    # identity
    1: "g01_posting_again_after_a_client_timeout_returns_the_saved_body",
    2: (
        "g02_a_provider_slower_than_our_timeout_is_called_once_and_keeps_the_hold",
        "a_provider_that_does_not_answer_in_time_is_unknown_and_called_once",
    ),
    4: (
        "g04_ids_of_durable_steps_are_the_kernels_own_and_no_caller_can_invent_one",
        "from_the_saved_rows_alone_the_same_requests_follow_byte_for_byte",
    ),
    5: "g05_the_same_id_with_reworded_content_is_a_conflict_and_keeps_the_first",
    7: "g07_a_worker_whose_admission_was_not_acknowledged_recognises_its_row_and_goes_on",
    8: "g08_a_settlement_without_acknowledgement_moves_the_balance_once",
    10: "g10_a_usage_write_that_failed_once_is_settled_by_the_retry_and_never_zero",
    11: "g11_after_a_restore_from_backup_only_the_ledger_row_decides",
    13: "g13_a_response_after_its_request_was_given_up_is_still_charged_and_the_overrun_flagged",
    14: ("g14_reading_a_result_five_times_charges_once", "reads_do_not_change_a_row"),
    16: "g16_one_operation_is_one_charge_however_many_layers_it_passes",
    17: "g17_two_operations_with_one_provider_id_are_two_rows_and_two_charges",
    19: "g19_a_trace_id_shared_by_three_operations_is_no_key",
    # settlement
    22: (
        "g22_what_a_stopped_process_left_unsettled_is_settled_by_the_next",
        "sigterm_with_thirty_answers_just_given_leaves_each_of_them_charged_once",
    ),
    23: (
        "g23_a_page_of_fifty_that_died_rolls_back_whole_and_settles_each_once",
        "killed_in_the_middle_of_a_page_of_fifty_each_of_them_is_charged_once",
    ),
    25: "g25_two_settlers_in_opposite_order_reach_the_exact_total",
    26: "g26_a_nul_byte_is_stored_losslessly_and_49_others_settle",
    28: "eight_processes_at_a_cap_that_has_room_for_one_admit_exactly_one",
    # streams and clients
    29: "g29_a_stream_cut_after_three_events_keeps_its_part_and_tells_the_client",
    31: "g31_a_failure_inside_a_200_stream_is_a_failure_with_the_usage_it_reports",
    32: "a_model_request_is_sent_once_and_charged_once_wherever_its_process_ends",
    34: "g34_a_client_that_leaves_before_a_plain_answer_is_charged_in_full",
    35: "g35_text_without_a_usage_chunk_is_pending_with_its_hold_and_never_free",
    37: "g37_null_usage_first_is_ignored",
    38: "g38_zero_usage_in_every_chunk_then_the_real_one",
    40: "g40_we_ask_for_usage_and_strip_the_chunk_the_client_did_not_ask_for",
    41: "g41_cumulative_deltas_are_not_summed",
    43: "g43_the_last_snapshot_wins_field_by_field",
    44: "g44_usage_nested_under_response_is_found",
    46: "g46_the_providers_numbers_are_taken_verbatim",
    47: "g47_a_character_cut_between_chunks_is_passed_and_read",
    # prices
    49: "g49_cached_tokens_are_not_billed_at_the_full_rate_too",
    50: "g50_a_cache_write_is_billed_once",
    52: "g52_cached_tokens_are_billed_at_the_cached_rate",
    53: "g53_each_input_token_of_a_messages_usage_is_counted_once",
    55: "g55_reasoning_is_part_of_the_output",
    56: "g56_thoughts_are_billed_as_output",
    58: "g58_audio_without_an_audio_rate_is_pending_not_free_and_not_text",
    59: "g59_the_tier_of_the_response_wins",
    61: "g61_one_token_above_the_border_changes_the_rate_of_the_whole_request",
    62: "g62_attempts_on_several_models_are_pending_never_one_guessed_rate",
    # what people see
    64: ("g64_tiny_costs_keep_their_digits", "pending_is_a_word_and_never_zero"),
    65: ("a_page_costs_two_queries_wherever_it_is", "a_list_that_stops_somewhere_says_so"),
    67: (
        "g67_requests_of_one_account_in_time_order_have_their_index",
        "no_combination_of_filters_reads_much_more_than_it_shows",
    ),
    68: "spend_is_the_sum_of_the_ledger_by_day_of_utc",
    70: "g70_a_total_read_during_settlement_never_jumps",
    71: (
        "g71_no_row_of_a_list_carries_a_body_or_an_echo_of_it",
        "a_length_over_the_bound_is_refused_before_the_application_starts",
    ),
    73: (
        "a_charge_without_a_price_is_told_once",
        "many_charges_without_a_price_are_one_alert_that_counts_them",
        "home_counts_the_charges_that_wait_for_a_price",
    ),
    74: "g73_g74_an_unknown_or_prefixed_model_has_no_price",
    76: "g76_the_cost_a_reseller_reports_is_evidence_and_its_gap_is_shown",
    77: (
        "g77_a_rate_per_token_entered_as_per_million_must_be_confirmed",
        "an_unusual_rate_needs_a_second_look",
    ),
    # caps
    79: "g79_of_eight_that_read_the_same_balance_exactly_one_is_admitted",
    80: "g80_holds_enforce_the_cap_while_nothing_settles",
    # doubtful metering
    82: "g82_a_count_that_is_no_count_is_pending_and_its_text_is_kept",
    83: "g83_a_missing_total_changes_nothing",
    85: "g85_a_replay_costs_nothing_and_counts_no_token_again",
    # what a failure costs is fixed by requirement A7, in one table of the code: no setting
    86: (
        "g86_a_stream_that_dies_after_its_final_usage_is_charged_what_it_reported",
        "a_stream_that_failed_is_charged_what_it_reported_and_says_why_it_failed",
    ),
    88: "g88_a_subset_larger_than_its_parent_is_inconsistent",
}


def test_every_case_has_a_test_that_exists() -> None:
    assert not_written(CASES) == []
