PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE attempts (
        job INTEGER NOT NULL, attempt INTEGER NOT NULL, boot TEXT NOT NULL, devices TEXT NOT NULL, began REAL NOT NULL, ended REAL NOT NULL,
        state TEXT NOT NULL, record TEXT NOT NULL, energy REAL NOT NULL, PRIMARY KEY (job, attempt));
CREATE TABLE decisions (number INTEGER PRIMARY KEY, at REAL NOT NULL, job INTEGER NOT NULL, action TEXT NOT NULL, reason TEXT);
CREATE TABLE environments (hash TEXT PRIMARY KEY, variables TEXT NOT NULL);
CREATE TABLE jobs (
        id INTEGER PRIMARY KEY, token TEXT NOT NULL, environment TEXT NOT NULL, asked TEXT NOT NULL, state TEXT NOT NULL,
        submit REAL NOT NULL, user TEXT NOT NULL, reason TEXT NOT NULL, array TEXT NOT NULL, held INTEGER NOT NULL,
        attempt INTEGER NOT NULL, queued REAL NOT NULL, start REAL NOT NULL, exit_code INTEGER, end REAL NOT NULL,
        stopping TEXT NOT NULL, signal INTEGER NOT NULL, devices TEXT NOT NULL, ran REAL NOT NULL, energy REAL NOT NULL,
        expected REAL NOT NULL, history TEXT NOT NULL, preemptions INTEGER NOT NULL, retried INTEGER NOT NULL, losses INTEGER NOT NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE INDEX jobs_by_state ON jobs (state);
CREATE INDEX jobs_by_token ON jobs (token);
COMMIT;
