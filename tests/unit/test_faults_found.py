"""The faults that a hostile look found, by number, and what keeps each from coming back.

A place is one test, `file::test`, or a case of the attack (`python -m tests.drills.attack`).
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from tests.drills.attack import all_cases

ROOT = Path(__file__).parents[2]
CONTRACT = "src/hawser/testing/contract"
CHECKER = "tests/lab/test_checker.py"


class Fault(NamedTuple):
    """What was wrong, and where it is looked for."""

    said: str
    places: tuple[str, ...]
    seen_to_fail: Literal["yes", "not tried"]
    """Whether its cure was taken out of the code of today, and the first of the tests failed then. The second fault has two: both
    were."""


FAULTS: dict[int, Fault] = {
    1: Fault(
        "jobs die without ever being started",
        (
            "tests/worker/test_claims.py::test_nothing_is_claimed_ahead_of_a_free_slot",
            "tests/worker/test_claims.py::test_no_more_is_claimed_than_can_start_at_once_however_short_the_jobs_are",
            f"{CONTRACT}/reclaim.py::test_the_record_says_when_it_is_not_known_whether_the_run_began",
            f"{CHECKER}::test_a_dead_job_that_was_never_started_is_a_violation_unless_its_record_says_that_it_is_not_known",
            "kill-everything-sqlite",
            "kill-supervisor-postgres",
        ),
        "yes",
    ),
    2: Fault(
        "children of a killed process block the SQLite file",
        (
            "tests/stores/test_sqlite_fork.py::test_the_lock_ends_with_its_holder_though_its_children_live_on",
            "orphans-of-a-killed-writer",
        ),
        "yes",
    ),
    3: Fault(
        "a fork during a write blocks the SQLite file",
        (
            "tests/stores/test_sqlite_fork.py::test_a_fork_waits_for_the_transaction_under_way",
            "tests/stores/test_sqlite_fork.py::test_a_child_of_a_fork_that_could_not_wait_refuses_instead_of_blocking",
            "fork-during-a-write",
            "process-in-a-handler",
            "preloaded-children",
        ),
        "yes",
    ),
    4: Fault(
        "a repeated POST makes a second job",
        (
            "tests/api/test_repeats.py::test_a_repeated_request_makes_no_second_job",
            "tests/api/test_repeats.py::test_a_repeated_id_makes_no_second_job_also_when_the_first_is_done",
            "server-killed-and-repeated",
        ),
        "yes",
    ),
    5: Fault(
        "clock set back to a day without a table",
        (
            "tests/stores/test_postgres.py::test_a_day_is_made_when_the_clock_was_set_back_to_one_without_a_table",
            "server-clock-set-back-days",
        ),
        "yes",
    ),
    6: Fault(
        "jobs stuck after a failover with a zombie",
        (
            "tests/lab/test_replicated_pair.py::test_no_connection_stays_with_a_zombie_that_is_thawed",
            "tests/lab/test_replicated_pair.py::test_a_frozen_primary_is_left_for_the_one_that_was_promoted",
            "zombie-primary",
        ),
        "yes",
    ),
    7: Fault(
        "clock set back by an hour: due jobs wait",
        (
            f"{CONTRACT}/set_back.py::test_a_backlog_goes_on_in_its_order",
            f"{CONTRACT}/set_back.py::test_every_way_to_wait_that_was_over_is_over",
            "clock-set-back",
            "server-clock-set-back",
        ),
        "yes",
    ),
    8: Fault(
        "outcomes dropped after an outage",
        (
            "tests/worker/test_outage.py::test_what_ended_while_the_store_was_away_is_written_long_after_its_lease",
            "tests/worker/test_outage.py::test_that_the_store_is_back_is_said_when_it_has_answered",
            "store-away-for-three-leases",
        ),
        "yes",
    ),
    9: Fault(
        "a full pipe, SIGHUP and a closed terminal",
        (
            "tests/worker/test_signals.py::test_a_signal_a_lost_terminal_and_a_full_pipe_do_what_is_promised",
            "tests/api/test_processes.py::test_under_nohup_a_server_outlives_its_terminal",
            "tests/api/test_processes.py::test_a_full_pipe_holds_up_neither_answers_nor_the_end",
            "full-pipe",
            "sighup",
            "closed-terminal",
            "stacks",
        ),
        "yes",
    ),
    10: Fault(
        "old workers and new jobs",
        (
            "tests/worker/test_refusals.py::test_a_declined_job_goes_back_at_once_and_is_not_asked_for_again",
            "tests/worker/test_refusals.py::test_a_worker_that_can_run_none_of_what_is_due_does_not_spin",
            "tests/worker/test_rollout.py::test_a_rolling_deploy_costs_no_attempt_and_an_old_worker_does_not_spin",
            "two-releases-sqlite",
            "two-releases-postgres",
            "unaccepted-postgres",
        ),
        "yes",
    ),
    11: Fault(
        "a store that cannot write looks healthy",
        (
            "tests/api/test_readiness.py::test_a_server_whose_store_takes_no_writes_says_so_and_says_when_it_does_again",
            "tests/deploy/test_deploy.py::test_prometheus_agrees",
            "sqlite-write-lock-held",
        ),
        "yes",
    ),
    12: Fault(
        "unknown options are ignored", ("tests/unit/test_unknown_options.py::test_a_worker_refuses_what_it_does_not_know",), "yes"
    ),
    13: Fault(
        "the wrong handler is blamed",
        (
            "tests/worker/test_blame.py::test_whoever_turns_on_the_loop_is_named_and_its_neighbours_lose_nothing",
            "handler-stops-the-loop-postgres",
        ),
        "yes",
    ),
    14: Fault(
        "lab drain ends in a division by zero",
        ("tests/lab/test_drain.py::test_a_drain_that_ends_between_two_looks_has_no_rate_and_says_so",),
        "yes",
    ),
    15: Fault(
        "SQLite file removed or replaced",
        (
            "tests/stores/test_sqlite_place.py::test_nothing_is_accepted_into_a_file_that_no_other_process_would_find",
            "tests/stores/test_sqlite_place.py::test_it_is_noticed_within_a_moment_however_much_is_written",
            "sqlite-file-removed",
            "sqlite-log-removed",
        ),
        "yes",
    ),
    16: Fault(
        "the password of the store is logged",
        (
            "tests/cli/test_secrets.py::test_no_command_shows_a_password",
            "tests/cli/test_secrets.py::test_what_runs_for_long_shows_no_password",
        ),
        "yes",
    ),
    17: Fault(
        "behind a plain proxy everyone is admin",
        (
            "tests/api/test_proxy.py::test_behind_a_bare_proxy_nobody_is_admin",
            "tests/api/test_keyless.py::test_a_process_of_our_own_user_that_listens_may_speak_for_others",
            "tests/api/test_keyless.py::test_what_speaks_like_nginx_is_not_local",
            "tests/api/test_keyless.py::test_a_unix_socket_has_no_address_and_is_not_local",
            "bare-reverse-proxy",
        ),
        "yes",
    ),
    18: Fault(
        "keys of one task are taken by another",
        (
            f"{CONTRACT}/keys.py::test_a_key_is_held_by_its_own_task_only",
            "tests/api/test_repeats.py::test_a_producer_of_one_task_cannot_take_the_key_of_another",
        ),
        "yes",
    ),
    19: Fault(
        "headers without an end",
        (
            "tests/api/test_connections.py::test_a_head_without_end_is_cut_off_early",
            "tests/api/test_connections.py::test_who_takes_too_long_is_cut_off_and_the_others_are_answered",
            "tests/api/test_connections.py::test_one_address_has_so_many_connections",
            "endless-header",
            "half-open-connections",
        ),
        "yes",
    ),
    20: Fault(
        "a revoked key goes on in open calls",
        (
            "tests/api/test_open_calls.py::test_a_revoked_key_ends_its_open_stream",
            "tests/api/test_open_calls.py::test_a_revoked_key_gets_no_job_from_a_claim_that_waits",
            "tests/api/test_open_calls.py::test_a_revoked_key_ends_a_call_that_waits_for_a_job",
            "tests/api/test_open_calls.py::test_a_revoked_key_cuts_the_file_that_is_being_sent",
        ),
        "yes",
    ),
    21: Fault("one key takes all event streams", ("tests/api/test_open_calls.py::test_one_key_cannot_take_all_streams",), "yes"),
    22: Fault(
        "a lease can be guessed",
        (
            "tests/api/test_limits.py::test_a_run_belongs_to_the_key_that_claimed_it",
            "tests/api/test_limits.py::test_no_key_settles_the_run_of_a_worker_process",
            "tests/api/test_limits.py::test_a_worker_may_be_held_to_queues",
        ),
        "yes",
    ),
    23: Fault(
        "rates count requests and not jobs",
        (
            "tests/api/test_limits.py::test_a_rate_counts_jobs_and_a_batch_leaves_a_debt",
            "tests/api/test_limits.py::test_a_producer_may_be_held_to_queues",
            "tests/api/test_limits.py::test_attempts_over_http_have_an_end",
            "tests/api/test_limits.py::test_a_queue_without_a_limit_has_one_over_http",
        ),
        "yes",
    ),
    24: Fault(
        "the audit misses bulk actions and refusals",
        (
            "tests/api/test_bulk.py::test_the_audit_has_the_filter_the_jobs_and_the_operation",
            "tests/cli/test_audit.py::test_a_bulk_action_shows_its_filter_and_its_jobs",
            "tests/api/test_visits.py::test_who_was_refused_is_logged",
            "tests/api/test_visits.py::test_every_request_is_logged_when_switched_on",
        ),
        "yes",
    ),
    25: Fault(
        "wrong TLS files look like a fault of Hawser",
        ("tests/api/test_tls.py::test_a_file_that_cannot_be_used_is_named_with_the_next_step",),
        "yes",
    ),
    26: Fault(
        "a page of jobs sorts whole rows",
        (
            "tests/stores/test_sqlite_find.py::test_a_page_is_read_in_order_and_not_sorted",
            "tests/stores/test_sqlite_find.py::test_what_has_to_be_sorted_is_narrow",
            "tests/stores/test_postgres_find.py::test_a_page_reads_no_more_jobs_than_it_gives",
        ),
        "yes",
    ),
    27: Fault(
        "lists carry whole payloads",
        (
            "tests/api/test_lists.py::test_a_brief_list_has_no_payloads_and_says_so",
            "tests/api/test_lists.py::test_a_large_answer_is_compressed_for_those_who_can_read_it",
        ),
        "yes",
    ),
    28: Fault(
        "groups of dead jobs are slow",
        (
            "tests/api/test_groups.py::test_whole_jobs_are_not_read_for_it",
            f"{CONTRACT}/groups.py::test_a_group_is_read_without_its_jobs",
            "tests/api/test_groups.py::test_a_group_is_listed_and_acted_on",
        ),
        "yes",
    ),
    29: Fault(
        "bulk operations end with their server",
        (
            "tests/api/test_operations.py::test_another_server_goes_on_when_the_first_is_killed",
            f"{CONTRACT}/bulk.py::test_an_interrupted_operation_is_taken_over",
        ),
        "yes",
    ),
    30: Fault(
        "an empty filter answers in many pages",
        (
            "tests/api/test_lists.py::test_a_filter_that_matches_nothing_is_answered_at_once",
            "tests/api/test_lists.py::test_a_search_says_how_far_it_came",
            "tests/stores/test_sqlite_find.py::test_a_filter_whose_lanes_hold_nothing_looks_at_nothing",
            "tests/stores/test_postgres_find.py::test_a_filter_whose_lanes_hold_nothing_looks_at_nothing",
        ),
        "yes",
    ),
    31: Fault(
        "messages without a next step",
        (
            "tests/api/test_jobs.py::test_an_unknown_field_says_which_one_may_be_meant",
            "tests/api/test_jobs.py::test_type_is_another_word_for_task",
            "tests/unit/test_bad_input.py::test_a_missing_extra_is_named_with_the_command_that_brings_it",
            "tests/stores/test_sqlite_fork.py::test_a_file_system_without_locks_is_told_with_what_to_do",
            "tests/stores/test_postgres_refusals.py::test_a_database_that_cannot_hold_every_text_is_refused",
            "tests/stores/test_postgres_refusals.py::test_a_role_that_may_not_make_the_schema_is_told_how_to_get_one",
            "tests/stores/test_postgres_refusals.py::test_a_pooler_that_refuses_our_settings_is_recognised",
            "tests/stores/test_postgres_refusals.py::test_a_pooler_that_loses_our_statements_is_recognised",
            "tests/unit/test_task.py::test_the_method_of_another_library_says_what_it_is_called_here",
            "tests/unit/test_task.py::test_a_method_cannot_be_a_task_but_a_bound_or_static_one_can",
            "tests/unit/test_portal.py::test_a_first_enqueue_at_the_end_of_the_program_says_what_to_do",
            "tests/stores/test_postgres_refusals.py::test_an_address_of_sqlalchemy_is_told_from_ours",
        ),
        "yes",
    ),
    32: Fault(
        "the demo says that it removed a store",
        ("tests/cli/test_program.py::test_the_demo_says_what_became_of_its_store",),
        "yes",
    ),
    33: Fault(
        "JobQueue changes payloads silently",
        ("tests/unit/test_queue.py::test_a_payload_that_would_be_changed_is_refused",),
        "yes",
    ),
    34: Fault(
        "the OpenAPI document has unions without names",
        (
            "tests/api/test_openapi.py::test_no_schema_is_a_union_without_a_name",
            "tests/api/test_openapi.py::test_operations_have_names_and_tags",
        ),
        "yes",
    ),
    35: Fault(
        "alerts that operators would set",
        (
            "tests/deploy/test_deploy.py::test_prometheus_agrees",
            "tests/deploy/test_deploy.py::test_every_alert_has_its_entry_in_the_runbook_and_its_test",
            "tests/api/test_metrics.py::test_counters_of_the_store_count_all_producers_and_start_at_zero",
        ),
        "yes",
    ),
    36: Fault(
        "schedules, parents and counts over HTTP",
        (
            "tests/api/test_schedules.py::test_a_schedule_has_a_queue_and_a_priority_of_its_own",
            "tests/api/test_jobs.py::test_a_job_may_name_its_parent",
            "tests/api/test_bulk.py::test_one_is_tried_before_the_rest",
        ),
        "yes",
    ),
    37: Fault("the first key on a new store", ("tests/cli/test_keys.py::test_the_first_key_makes_the_store",), "yes"),
}


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


def is_kept(place: str) -> bool:
    path, _, name = place.partition("::")
    return name in names_in(path) if name else place in all_cases()


def test_every_number_is_here():
    assert list(FAULTS) == list(range(1, 38))


@pytest.mark.parametrize("number", FAULTS)
def test_a_fault_that_was_found_has_a_kept_test(number):
    fault = FAULTS[number]
    assert [place for place in fault.places if not is_kept(place)] == []
    assert "::" in fault.places[0], "the first place is a test of script/test"
