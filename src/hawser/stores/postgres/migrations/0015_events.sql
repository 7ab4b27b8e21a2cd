-- Events, and waits for them. `until` is how long an event is kept at least.
create table hawser.event (
    at bigint not null,
    until bigint not null,
    name text primary key,
    body bytea not null
);
create index event_until on hawser.event (until);

-- A step of kind `wait` or `woken` came to nothing yet: `event` is what it waits for.
alter table hawser.step add column event text;
create index step_event on hawser.step (event) where event is not null and kind in ('wait', 'woken');
create index step_due on hawser.step (until) where until is not null and kind = 'wait';

-- Events that have come or that a job waits for from now on: appended in the commit that writes either, taken away by who looks whether both
-- are there.
create table hawser.stirred (event text not null);
alter table hawser.stirred set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
