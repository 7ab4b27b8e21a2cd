-- Events, and waits for them. `until` is how long an event is kept at least. A step of kind `wait` or `woken` came to nothing yet: `event`
-- is what it waits for.
create table hawser_event (
    name text not null primary key,
    body blob not null,
    at integer not null,
    until integer not null
) without rowid;
create index hawser_event_until on hawser_event (until);
alter table hawser_step add column event text;
create index hawser_step_event on hawser_step (event, kind) where event is not null;
create index hawser_step_due on hawser_step (until) where until is not null and kind = 'wait';
