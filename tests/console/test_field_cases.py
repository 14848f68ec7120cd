"""What broke in consoles of others, and the tests that it does not break here, by number.

The numbers are those of the field cases of the console; every test named here must exist.
"""

import re
from pathlib import Path

from django.conf import settings
from django.utils.translation import to_locale

from tests.support.field_cases import written

ROOT = Path(__file__).resolve().parents[2]
CASES: dict[int, tuple[str, ...]] = {
    # lists: no counting, hard caps, filters before pages, bad filters refused
    1: ("test_a_list_never_counts_and_reads_a_bounded_number_of_rows",),
    2: ("test_a_count_stops_at_its_cap",),
    4: ("test_spend_is_the_sum_of_the_ledger_by_day_of_utc",),
    5: ("test_the_lists_of_the_kernel_stop_where_the_console_says",),
    7: ("test_the_list_costs_the_same_for_few_and_for_many",),
    8: ("test_every_row_is_on_exactly_one_page",),
    10: ("test_a_bad_filter_is_an_error_in_place_and_never_everything",),
    11: ("test_an_act_swaps_its_part_and_says_so",),
    # sets: named, frozen, equal to their preview
    13: ("test_a_plan_names_its_set_and_does_nothing",),
    14: ("test_only_the_plan_that_was_seen_is_applied",),
    16: ("test_the_result_counts_are_those_of_the_preview",),
    17: ("test_what_is_asked_is_what_is_in_the_set",),
    19: (
        "test_an_empty_filter_is_refused",
        "test_a_set_over_the_limit_is_refused_and_leaves_nothing",
    ),
    20: ("test_a_plan_without_a_filter_is_refused_in_words",),
    22: ("test_shift_ticks_a_range_and_a_poll_keeps_it",),
    23: ("test_bulk_lists_first_then_decides_exactly_these_and_answers_row_by_row",),
    25: ("test_who_may_act",),
    26: ("test_the_first_post_shows_the_effect_and_changes_nothing",),
    28: ("test_a_hidden_tab_does_not_poll",),
    # what others wrote
    29: ("test_hostile_text_is_harmless_in_every_tag",),
    31: ("test_a_template_has_nothing_that_the_policy_would_block",),
    32: ("test_every_view_of_the_console_is_public_or_declares_a_permission",),
    34: ("test_who_may_look",),
    35: ("test_what_hides_is_shown_and_secrets_are_not",),
    37: ("test_each_act_writes_one_audit_row_with_person_and_http_request",),
    38: ("test_a_change_lists_only_what_differs_in_units_for_people",),
    # sessions and forms
    40: ("test_a_form_sent_after_the_sign_in_ended_keeps_what_was_typed",),
    41: ("test_a_stale_form_keeps_its_note_and_may_be_sent_again",),
    43: ("test_a_proxy_says_whether_its_side_was_tls",),
    44: ("test_polls_never_extend_a_session",),
    46: ("test_back_shows_the_whole_page",),
    47: ("test_back_after_an_act_shows_the_whole_page_as_it_is_now",),
    49: ("test_a_double_click_without_script_acts_once",),
    50: ("test_two_people_who_dispatch_at_once_make_one_call",),
    52: ("test_a_lost_race_is_409_says_who_and_keeps_the_note",),
    53: ("test_the_form_works_again_after_its_answer",),
    55: ("test_arguments_other_than_the_shown_ones_are_not_approved",),
    56: (
        "test_padding_that_pushes_a_command_out_of_sight_is_counted",
        "test_a_word_that_mixes_alphabets_is_named",
        "test_the_length_is_never_cut",
    ),
    58: ("test_a_failed_poll_keeps_the_page_and_marks_it_stale",),
    59: ("test_looking_at_any_link_decides_nothing",),
    # long acts
    61: ("test_progress_is_polled_from_real_counts_and_stops_with_the_end",),
    62: ("test_newcomers_and_what_was_dealt_with_are_not_in_the_set",),
    64: ("test_the_result_equals_the_preview_and_skipped_ones_say_why",),
    65: ("test_no_more_than_the_rate_is_taken_in_a_second",),
    # times and numbers
    67: ("test_a_local_day_has_its_true_length_in_utc",),
    68: ("test_a_page_has_one_zone",),
    70: ("test_outcomes_are_counted_by_the_hour_of_utc",),
    71: ("test_a_cell_that_could_start_a_formula_is_quoted",),
    73: ("test_requests_are_exported_without_their_bodies",),
    # what people see, hear and press
    74: ("test_no_screen_breaks_a_rule_or_is_cut_off",),
    76: ("test_a_lost_race_is_focused_and_keeps_the_note",),
    77: ("test_no_screen_breaks_a_rule_or_is_cut_off", "test_the_list_says_how_many_came"),
    79: ("test_the_watch_notices_what_the_policy_refuses",),
    80: ("test_the_raw_rows_keep_to_the_policy_as_well",),
    82: ("test_no_form_is_morphed",),
    83: ("test_an_act_swaps_its_part_and_says_so",),
    85: ("test_every_language_has_its_folder",),
    86: ("test_of_what_a_proxy_passes_on_the_last_address_that_is_no_proxy_counts",),
    88: ("test_keys_can_be_switched_off_and_ignore_synthetic_events",),
}


def test_every_case_has_a_test_that_exists():
    named = {name for names in CASES.values() for name in names}
    assert sorted(named - written()) == []


def test_no_form_is_morphed():
    """A morph keeps stale ticks and old values (case 82): parts are replaced, never merged."""
    texts = {
        path.name: path.read_text("utf-8")
        for path in [*ROOT.glob("templates/**/*.html"), *ROOT.glob("static/**/*.js")]
    }
    texts |= {path.name: path.read_text("utf-8") for path in ROOT.glob("console/**/*.py")}
    assert not [name for name, text in texts.items() if "morph" in text.lower()]
    swaps = {swap for text in texts.values() for swap in re.findall(r'hx-swap="([^"]*)"', text)}
    assert swaps <= {"innerHTML", "outerHTML", "none", "beforeend"}


def test_every_language_has_its_folder():
    """A code such as zh-hans is the folder zh_Hans (case 85); English is what the code says."""
    for code, _name in settings.LANGUAGES:
        folder = ROOT / "console" / "locale" / to_locale(code)
        assert code == "en" or (folder / "LC_MESSAGES" / "django.po").is_file()
