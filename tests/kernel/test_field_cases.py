"""What broke in databases, transport and runtimes of others, and the tests that it does not here.

By the numbers of those field cases; names of tests without their `test_`.
"""

from tests.support.field_cases import not_written

CASES: dict[int, str | tuple[str, ...]] = {
    # outgoing calls
    1: "after_a_thousand_cancelled_calls_fresh_ones_succeed",  # there is no pool to get stuck
    2: "a_cancelled_download_gives_its_connection_up",
    4: "cancelling_a_call_twice_still_lets_go_of_the_connection",
    5: "after_a_thousand_cancelled_calls_fresh_ones_succeed",
    7: "a_request_that_may_have_arrived_is_never_sent_again",
    8: "a_redirect_is_an_answer_and_is_not_followed",
    10: (
        "what_is_not_whole_or_too_large_leaves_nothing",
        "compressed_bytes_that_decode_to_nothing_count_too",
    ),
    11: "a_bomb_stops_inside_the_decoder",
    13: "over_the_budget_nothing_of_the_body_is_returned",
    14: "a_bomb_costs_no_more_than_its_budget",
    # queues and workers: a claim is a row, no message is a claim
    16: "a_worker_runs_no_more_jobs_at_once_than_it_may",
    17: (
        "close_waits_for_what_has_begun_and_leaves_the_rest_in_the_table",
        "a_worker_that_is_asked_to_end_saves_its_call_and_another_goes_on",
    ),
    19: "every_job_finishes_once_while_workers_and_the_broker_are_killed",
    20: "a_job_that_loses_its_workers_is_parked_and_the_queue_moves_on",
    22: "doubled_and_odd_messages_change_nothing",
    23: "every_job_finishes_once_while_workers_and_the_broker_are_killed",
    25: (
        "one_request_id_from_many_at_once_is_one_job",
        "a_wake_up_is_said_after_the_commit_and_never_without_it",
    ),
    26: ("a_worker_that_cannot_run_says_why_and_ends", "closing_ends_every_thread_and_connection"),
    28: ("no_canary_comes_out_anywhere", "celery_takes_its_broker_and_shows_no_secret"),
    # schedules: nothing has slots; a pass looks at rows, and each row moves once
    29: "lives_shorter_than_the_interval_each_begin_with_a_run",
    31: "missed_intervals_are_made_up_for_by_one_run",
    32: (
        "runs_that_overlap_without_a_common_lock_charge_each_request_once",
        "two_ticks_at_once_start_one_pass",
    ),
    34: "each_thread_has_its_own_connection_and_keeps_it",
    35: "the_database_server_killed_under_load_keeps_what_it_acknowledged_and_the_kernels_go_on",
    # connections
    37: "threads_that_connect_over_tls_all_at_once_all_do",
    38: (
        "every_session_has_the_settings_the_verbs_rely_on",
        "threads_keep_their_connection_and_heal_it_after_a_restart",
    ),
    40: (
        "a_lost_commit_is_never_run_again",
        "a_connection_lost_before_commit_runs_the_block_once_more",
    ),
    41: "500_clients_that_abort_leave_everything_settled_and_nothing_open",
    43: (
        "people_who_leave_pages_by_the_hundred_leave_a_console_that_answers",
        "a_thousand_cancelled_callers_leave_the_bridge_whole",
    ),
    # the stock admin shows rows and changes none
    44: "no_table_can_be_changed",
    46: "no_table_can_be_changed",
    47: "no_page_holds_what_the_policy_refuses_or_an_id_twice",
    # requests into the product
    49: "a_header_with_an_underscore_never_reaches_the_application",
    50: "a_thousand_copies_of_a_header_are_quick",
    52: "no_text_forges_a_line_or_a_field",
    53: (
        "content_is_account_path_and_raw_body_without_ambiguity",
        "an_id_that_could_be_read_two_ways_is_never_signed",
    ),
    55: "no_answer_is_stored_and_each_varies_by_what_asked",
    # transactions
    56: "readers_that_go_on_to_write_wait_for_each_other",
    58: "every_session_has_the_settings_the_verbs_rely_on",
    59: "state_moves_only_by_compare_and_set",
    61: "a_server_without_skip_locked_is_found",
    62: "killed_after_any_ddl_statement_the_next_db_init_finishes",
    # ends
    64: (
        "close_waits_for_database_threads_and_says_so",
        "a_web_server_whose_commit_hangs_ends_within_the_budget_and_loses_nothing",
    ),
    65: "stream_saved_and_its_end_not_delivered_the_repeat_gets_the_whole_stream",
    67: "a_line_break_in_a_header_value_is_a_500_and_splits_nothing",
    68: "unclear_framing_is_refused",
    # metrics: each process has an address of its own
    70: "the_counters_of_two_processes_only_grow_and_add_up",
    71: "a_command_exports_nothing_and_leaves_nothing_behind",
    # text, addresses, effects
    73: (
        "a_hidden_code_point_is_named",
        "what_hides_in_a_text_is_named_in_the_mail",
        "a_chat_message_arrives_and_what_does_not_arrive_says_what_it_proves",
        "shown_values_hold_no_invisible_characters",
        "hostile_text_is_harmless_in_every_tag",
    ),
    74: "a_name_is_resolved_once_and_that_address_is_dialled",
    76: (
        "killed_after_the_answer_and_before_the_record_the_second_arrival_is_shown",
        "a_sender_that_outlives_its_lease_changes_nothing_any_more",
    ),
    77: "killed_before_the_commit_of_publishing_nothing_exists_and_the_repeat_publishes",
}


def test_every_case_has_a_test_that_exists() -> None:
    assert not_written(CASES) == []
