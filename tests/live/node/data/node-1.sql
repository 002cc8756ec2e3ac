PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE attempts (
        job INTEGER NOT NULL, attempt INTEGER NOT NULL, boot TEXT NOT NULL, devices TEXT NOT NULL, began REAL NOT NULL, ended REAL NOT NULL,
        state TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (job, attempt));
INSERT INTO "attempts" VALUES(1,1,'boot','["GPU-a"]',1003.0,1004.0,'FAILED','{"exit": 3}');
INSERT INTO "attempts" VALUES(1,2,'boot','["GPU-a"]',1010.0,1050.0,'DONE','{"exit": 0}');
INSERT INTO "attempts" VALUES(2,1,'boot','["cpu"]',1011.0,0.0,'RUNNING','{"pid": 1}');
CREATE TABLE environments (hash TEXT PRIMARY KEY, variables TEXT NOT NULL);
INSERT INTO "environments" VALUES('9689588afd7211ca843e1673a828374ea3b2188320039affb12012d5fb7c330a','{"PATH": "/usr/bin:/bin"}');
CREATE TABLE jobs (
        id INTEGER PRIMARY KEY, token TEXT NOT NULL, environment TEXT NOT NULL, asked TEXT NOT NULL, state TEXT NOT NULL,
        submit REAL NOT NULL, user TEXT NOT NULL, reason TEXT NOT NULL, array TEXT NOT NULL, held INTEGER NOT NULL,
        attempt INTEGER NOT NULL, queued REAL NOT NULL, start REAL NOT NULL, exit_code INTEGER, end REAL NOT NULL,
        stopping TEXT NOT NULL, signal INTEGER NOT NULL, devices TEXT NOT NULL, ran REAL NOT NULL, expected REAL NOT NULL, history TEXT NOT NULL, preemptions INTEGER NOT NULL, retried INTEGER NOT NULL, losses INTEGER NOT NULL);
INSERT INTO "jobs" VALUES(1,'t1','9689588afd7211ca843e1673a828374ea3b2188320039affb12012d5fb7c330a','{"command": ["python3", "train.py"], "name": "first", "walltime": 60.0}','DONE',1000.0,'ann','','[0, 0]',0,2,1000.0,1010.0,0,1050.0,'',0,'["GPU-a"]',0.0,30.0,'["1: FAILED: exit code 3"]',0,1,0);
INSERT INTO "jobs" VALUES(2,'','9689588afd7211ca843e1673a828374ea3b2188320039affb12012d5fb7c330a','{"command": ["true"], "requeue_lost": true}','RUNNING',1001.0,'ann','','[0, 0]',0,1,1001.0,1011.0,NULL,0.0,'',0,'["cpu"]',0.0,0.0,'[]',0,0,0);
INSERT INTO "jobs" VALUES(3,'t3','9689588afd7211ca843e1673a828374ea3b2188320039affb12012d5fb7c330a','{"command": ["sh", "-c", "exit $GPUYARD_ARRAY_INDEX"], "array_limit": 1}','PENDING',1002.0,'ann','','[3, 0]',0,0,1002.0,0.0,NULL,0.0,'',0,'[]',0.0,0.0,'[]',0,0,0);
INSERT INTO "jobs" VALUES(4,'t3','9689588afd7211ca843e1673a828374ea3b2188320039affb12012d5fb7c330a','{"command": ["sh", "-c", "exit $GPUYARD_ARRAY_INDEX"], "array_limit": 1}','PENDING',1002.0,'ann','','[3, 1]',1,0,1002.0,0.0,NULL,0.0,'',0,'[]',0.0,0.0,'[]',0,0,0);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "meta" VALUES('boot','boot');
INSERT INTO "meta" VALUES('origin','1000.0');
INSERT INTO "meta" VALUES('draining','no');
CREATE INDEX jobs_by_state ON jobs (state);
CREATE INDEX jobs_by_token ON jobs (token);
COMMIT;
