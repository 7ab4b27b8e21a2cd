"""The contract's own test: of every planted bug it is known which test of the contract notices it, in each store.

`HAWSER_MUTANT=no_fence script/test tests/contract` shows all that do.
"""

import inspect

import pytest

from hawser.testing import contract
from tests.mutants import BESIDE_THE_JOBS, MUTANTS
from tests.postgres import emptied, own_schema, server, versions, with_schema
from tests.redis_servers import LANES, kinds, own_store, shared

NOTICED_BY = {
    "limit_frees_nothing": "test_an_expired_run_counts_until_it_is_reclaimed",
    "priorities_do_not_age": "test_one_of_ten_places_goes_to_a_lower_priority_that_has_aged",
    "every_queue_ages_alike": "test_a_queue_says_how_long_its_jobs_take_to_age",
    "older_calls_replace_newer_ones": "test_an_older_call_changes_nothing",
    "a_breaker_opens_twice": "test_of_many_who_judge_at_once_one_opens_it",
    "a_judge_closes_what_a_person_opened": "test_what_a_person_opened_a_person_closes",
    "every_claim_gets_a_probe": "test_of_many_claimers_one_gets_the_probe",
    "an_open_breaker_keeps_nothing_back": "test_jobs_of_an_open_breaker_are_not_given_out",
    "rate_is_not_kept": "test_retries_and_snoozed_runs_take_a_start_again",
    "no_fence": "test_a_late_settlement_is_refused_beside_the_new_one",
    "extend_without_fence": "test_leases_of_every_age_are_not_extended",
    "late_settlement_is_refused": "test_a_settlement_that_is_written_late_is_not_counted_as_stale",
    "attempt_at_settle": "test_a_lost_attempt_counts",
    "reclaim_without_state_guard": "test_a_few_lost_runs_are_found_among_many",
    "step_without_fence": "test_a_stale_run_records_nothing",
    "last_record_of_a_step_wins": "test_the_first_record_under_a_name_stays",
    "attempts_before_a_step_count": "test_a_lost_run_that_made_a_step_is_the_first_attempt",
    "wait_without_fence": "test_a_stale_run_decides_nothing",
    "time_out_is_not_recorded": "test_a_time_out_is_the_same_in_every_run",
    "an_event_in_time_is_late": "test_an_event_in_time_counts_however_late_the_run_is",
    "a_reclaim_wakes_some": "test_a_crowd_whose_time_is_over_is_ready_after_one_reclaim",
    "a_late_event_counts": "test_an_event_that_comes_behind_the_time_is_late",
    "wait_without_a_look": "test_emit_between_the_look_and_the_wait_is_not_lost",
    "last_event_wins": "test_the_first_event_under_a_name_stays",
    "wait_begins_anew": "test_the_time_of_a_wait_begins_once",
    "steps_outlive_their_job": "test_steps_go_with_their_job",
    "sleep_by_the_clients_clock": "test_a_sleep_ends_by_the_clock_of_the_store",
    "output_without_fence": "test_a_stale_run_writes_nothing",
    "output_is_kept_twice": "test_output_that_is_sent_again_is_kept_once",
    "reclaim_keeps_lease": "test_a_lost_run_can_never_settle",
    "requeue_resets_lease": "test_a_requeue_does_not_lower_the_lease_number",
    "no_attempts_of_the_queue": "test_a_job_that_says_nothing_has_the_attempts_of_its_queue",
    "fire_on_any_revision": "test_what_was_decided_too_early_changes_nothing",
    "tick_without_memory": "test_a_tick_has_one_job_though_its_schedule_begins_anew",
    "live_key_never_freed": "test_a_lost_run_without_attempts_left_frees_its_key",
    "key_until_the_start_goes_on": "test_a_key_until_the_start_is_free_once_its_job_has_started",
    "leases_of_every_worker_end": "test_the_leases_of_other_workers_stay",
    "key_of_a_changed_job_stays": "test_a_key_goes_along_into_another_queue",
    "window_ends_before_its_job": "test_a_prune_of_keys_takes_none_that_is_held",
    "bulk_step_of_any_turn": "test_a_frozen_process_does_not_go_on_with_what_another_has_taken",
    "bulk_step_twice": "test_a_step_is_written_once",
    "bulk_taken_from_the_living": "test_a_sign_of_life_leaves_no_record",
    "ids_of_others_are_taken": "test_an_id_of_another_job_refuses_only_its_own_call",
    "put_off_without_an_end": "test_it_is_put_off_for_so_long_at_most",
    "a_spread_is_not_kept": "test_requeued_with_a_spread_they_fall_due_evenly",
    "requests_are_not_remembered": "test_fifty_requests_at_once_with_one_key_make_one_job",
    "actions_are_not_noted": "test_the_newest_records_come_first_and_no_more_than_asked",
    "groups_of_any_queue": "test_groups_of_one_queue_and_task",
    "a_run_leaves_its_group_shut": "test_every_way_back_opens_the_group",
    "a_requeue_leaves_its_group_shut": "test_a_requeued_job_opens_its_group",
    "a_rewind_leaves_its_group_shut": "test_a_rewound_job_opens_its_group",
    "a_change_leaves_its_group_shut": "test_a_changed_job_goes_on_in_its_group",
    "a_release_leaves_its_group_shut": "test_a_job_of_a_group_joins_it_when_it_waits_for_no_other",
    "a_debounce_leaves_its_group_shut": "test_a_group_hears_of_the_new_time",
    "a_wake_leaves_its_group_shut": "test_a_job_in_a_group_is_woken_beside_others_of_it",
    "a_reclaim_frees_no_place": "test_an_expired_run_counts_until_it_is_reclaimed",
    "a_cancel_frees_no_place": "test_a_run_that_is_asked_to_stop_counts_until_it_ends",
    "a_run_leaves_its_limited_group_shut": "test_an_expired_run_counts_in_its_group_until_it_is_reclaimed",
    "groups_are_counted_together": "test_no_more_of_a_group_run_at_once_than_the_limit_says",
    "rate_of_a_group_is_not_kept": "test_retries_of_a_group_take_a_start_again",
    "a_retry_loses_its_place": "test_a_lost_run_comes_again_before_the_others",
    "weights_do_not_count": "test_a_weight_applies_from_the_next_claim_on",
    "jobs_do_not_expire": "test_every_start_is_checked",
    "an_open_batch_ends": "test_a_batch_that_is_not_closed_stays_open",
    "a_gather_waits_for_any_end": "test_a_parent_that_was_itself_held_waits_for_done_ones",
    "any_end_will_do": "test_a_dead_job_keeps_those_waiting_that_wait_for_it",
    "ends_of_members_are_not_counted": "test_a_failed_attempt_and_a_lost_run_end_nothing",
    "ended_batches_take_more": "test_an_ended_batch_takes_no_more",
    "circles_over_others_are_written": "test_two_batches_do_not_wait_for_each_other",
    "a_member_ends_before_what_it_adds": "test_what_a_member_adds_counts_from_its_end_on",
    "left_jobs_are_given_out": "test_a_job_that_is_left_is_not_given_out",
    "each_decline_begins_anew": "test_all_who_decline_a_job_count_together",
    "revoked_key_lives": "test_a_revoked_key_is_over_at_once_and_once",
    "expired_key_lives": "test_a_key_expires_by_the_clock_of_the_store",
    "key_put_again_revives": "test_putting_a_key_again_changes_nothing",
    "rollups_of_all_queues": "test_rollups_of_one_queue_or_task",
    "measured_in_the_next_bucket": "test_what_was_measured_is_added_up",
}


ON_REDIS = {f"{kind}-{lanes}": (kind, lanes) for kind in kinds() for lanes in LANES}


@pytest.fixture(params=["memory", "sqlite", "postgres", *ON_REDIS])
async def url(request, tmp_path):
    """On one PostgreSQL only: the statements are the same on every one. In a long run on Redis and on Valkey."""
    if request.param in ON_REDIS:
        kind, lanes = ON_REDIS[request.param]
        return own_store(shared(kind), lanes)
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'jobs.db'}"}.get(request.param)
    if url is None:
        url = with_schema(server(versions()[-1]), own_schema())
        await emptied(url)
    return url


@pytest.mark.parametrize("mutant", [*MUTANTS, *BESIDE_THE_JOBS], indirect=True)
async def test_a_planted_bug_is_noticed(mutant, store, second, clock, reopen):
    test = getattr(contract, NOTICED_BY[mutant])
    given = {"store": store, "second": second, "clock": clock, "reopen": reopen}
    with pytest.raises(AssertionError):
        await test(**{name: given[name] for name in inspect.signature(test).parameters})
