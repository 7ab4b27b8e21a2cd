-- Events that have more jobs to wake than one transaction should: whoever takes back leases goes on with them.
create table hawser_stirred (event text not null primary key) without rowid;
