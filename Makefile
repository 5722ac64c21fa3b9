# leasefs. `make` or `make help` lists what can be made.
# Every target first runs scripts/setup, which installs only what is missing.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# As releases are built. All builds of a run share what is compiled, in whichever folder the source is.
export CGO_ENABLED := 0
export GOFLAGS     := $(shell go env GOFLAGS 2>/dev/null) -trimpath -buildvcs=false
# The longest first, so that the others run beside it.
PKGS      ?= ./test/e2e ./namenode ./test/crash ./...
RACE_FLAGS ?=
# The longest first, too.
RACE_PKGS ?= ./namenode ./client ./gateway/hdfs ./leasemanager/... ./internal/journal/... ./internal/readcache ./namenode/... ./client/... ./internal/blockcache ./gateway/...
FUZZTIME  ?= 10
# The tests of large sizes (LEASEFS_TEST_SIZE=full repeats others more often, too).
FULL      ?= ^Test(TreesInAndOut|TreesOverAKilledNamenode|LargeFile|ManyAppends|ManySmallFiles|KilledWriterIsReplaced|HAStress|UpgradeFleet|Soak|PageOfMany)$$
# The tests that take the longest, since they wait for sessions and terms of several namenodes, or whose processes work for seconds: test-full runs them.
LONG      ?= ^Test(Runbooks|RunbooksOfSeveral|Forecasts|S3Restore|S3Faults|S3LatePutAfterTakeOver|Scenario39WriterGoesOn|Scenario40OverFailovers|Scenario43SlowNetwork|Scenario57CachesOverAFailover|HAStandbyFallsBehind|ArchiveOfAnOlderZooKeeper|ArchiveOutlivesTheDisk|StartOverLostRequests|RestoreOverLostRequests|FormatOverLostRequests|ZooKeeperFromABackup|CopiedZooKeepers|DiskFullToTheLastByte|Release|UpgradeFleet|GoInstall|HelmChart|Image|CSISanity|CSISanityTyped|CSIMountsLive|ArchiveOutlivesZooKeeper|DebianPackage|HBase|HALab|ElectedWithoutItsJournal|HATakeOverWithoutTheStore|HASecureZooKeeper|Scenario59OverFailovers|Scenario42PausedPastItsSession|Scenario43ZooKeeperDown|ZooKeeperPasswordRenewed|DeposedPurgesImages|HostileRequests|Login|S3Ensemble|MountPjdfstest|HAFollowerCutFromItsLeader|HAStaleReads|PageInChromium|PageIdleBar|PageOfAFleet|PageOfMany|PageOverTLS|PageTurnsAndFilters|PageWhileTheNamenodeIsAway|PageWithAToken|PythonPackage|PythonOverFailovers|MountFio|MountAway|MountFailover|Scenario45PagedListing|Scenario41RefusedByAStandby|HAWatchFromNow|Alarms|StartWithNothingFree|FilledByWriting|UnfitSettings|BackupWhileWriting|BackupAmidTheEndOfALease|BackupRefusals|BackupsAtOnce|BackupToAMount|CSIVolume|CSICreateKilled|CSIPublishKilled|CSIPods|CSIHostile|CSISecrets|MountsInTurn|MountsAtOnce|MountNeverStale|LockWithoutNamenode|JournalFromOutside|ImageFromOutside|S3|S3OverAMount|S3Keys[A-Z][A-Za-z]*|WireOneReleaseApart|UpgradeAlone|OldStandbyReadsOfTheLevel|RenamedUnderWritersOverKills|MountSQLite|MountVim|MountRotate|HowTo|Traces|PageOfHadoop|DoasFrom|PythonOneReleaseApart|Hadoop[A-Z][A-Za-z]*)$$
# Those that test-full runs in full size only.
LONG_FULL ?= ^Test(TreesInAndOut|LargeFile|KilledWriterIsReplaced|Soak|ManyAppends|ManySmallFiles|TreesOverAKilledNamenode|HAStress|ZooKeeperStaysBounded|HandOverUnderLoad|Scenario43Servers|AnyMomentIsArchived|TwoNamenodesArchive|ADayIsRestored)$$
# The tests that stand on an S3 server: make test, or if they are in LONG the first part of test-long, runs them on one of the servers, test-full on the other (test/env/s3env).
STORES    ?= ^Test(S3|S3Restore|S3Ensemble|S3Faults|S3LatePutAfterTakeOver|WrongScheme|DamagedSharedImage|ImageOfAnotherHistory|TakenOverStore|OneBackupOneStore|CopiedZooKeepers|Deposed.*|NamenodesWithDifferentStores)$$
# The packages whose sweeps take a sample daily (test/env/size).
FULL_PKGS ?= ./test/crash ./leasemanager ./namenode/namespace ./internal/journal/local
BENCH     ?= .
# Without debug information, which takes a third of the time to link; go vet is part of lint.
GOTEST    := go test -vet=off -ldflags='-s -w'
# For tests on small heaps, which would be collected all the time.
SMALL     := GOGC=400 GOMEMLIMIT=1GiB
# Of soak: how long, of how many worlds at most, whether clients think between calls, and the first seed. Of torture: how long, and the seed.
HOURS     ?= 1
MINUTES   ?= 30
SEEDS     ?= 1000000
SPARSE    ?=
SEED      ?= $(shell date +%s)

# Debian's ZooKeeper loses what was committed, now and then, when servers fail while they join: see OPERATIONS.md.
NEW_ZOOKEEPER := LEASEFS_TEST_ZOOKEEPER=$(CURDIR)/.cache/zookeeper/lib

.PHONY: help setup build deb demo test model test-full test-long sweeps soak torture soak-real mutants race lint fuzz bench curves experiments generate clean release

help: ## show this list
	@echo "make TARGET, one of:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Variables: VERSION, PKGS (test, bench), RACE_PKGS, FUZZTIME, BENCH, FULL, LONG, LONG_FULL, STORES, HOURS, SEEDS, SPARSE, SEED, MINUTES."

setup: ## install what test, race and lint need (each target does so for itself, too)
	@scripts/setup test race lint

build: ## build bin/leasefs
	@scripts/setup build
	go build -trimpath -ldflags "-X github.com/leasefs/leasefs/internal/release.linked=$(VERSION)" -o bin/leasefs ./cmd/leasefs

deb: ## make dist/leasefs_VERSION_ARCH.deb, for the architecture of GOARCH
	@scripts/setup deb
	@scripts/deb

release: ## make dist/VERSION: archives, packages, checksums, lists of contents and notes of a release
	@scripts/setup release
	@scripts/release $(VERSION)

demo: build ## build, then show writer leases at work on this machine (10 s)
	@scripts/demo

test: ## run the tests, but for the longest (go vet is part of lint)
	@scripts/setup test
	@echo "Results come in order, that of the longest package first."
	$(SMALL) $(GOTEST) -timeout 12m -p $$((3 * $$(nproc))) -parallel $$((4 * $$(nproc))) -skip '$(LONG)|$(LONG_FULL)' $(PKGS) # most of them wait more than they work

model: ## run the tests of what stands on ZooKeeper on a model of it, too
	@scripts/setup test
	LEASEFS_TEST_ZOOKEEPER=model $(GOTEST) ./internal/zkconn ./internal/election ./internal/journal/zk

test-full: test-long sweeps ## run the longest tests, then the end-to-end tests in full size: Go's whole source tree, 2 GiB, 100,000 files, the page of 100,000 leases and a million names, 25 failures of namenodes, two minutes of all kinds of clients; every point of all sweeps; two hours of simulated fleets; half a minute of torture, and of soak-real
	@mkdir -p .cache/soak/brief
	$(NEW_ZOOKEEPER) $(GOTEST) -count=1 -timeout 15m -v -tags torture ./test/torture -minutes 0.5 -seed $(SEED) -soak "$$PWD/.cache/soak/brief"

test-long: ## run the part of test-full that waits more than it works
	@scripts/setup test-full
	$(GOTEST) -count=1 -timeout 36m -parallel $$((4 * $$(nproc))) -run '$(LONG)' -skip '$(FULL)' ./test/e2e ./namenode ./test/page
	LEASEFS_TEST_SIZE=full $(GOTEST) -count=1 -timeout 30m -v -run '$(FULL)' ./test/e2e ./test/page
	LEASEFS_TEST_SIZE=full $(GOTEST) -count=1 -timeout 20m -parallel $$((2 * $$(nproc))) -run '$(STORES)|$(LONG_FULL)|^Test(Conformance|Scenario43BrokenConnections)$$' -skip '$(FULL)' ./test/e2e ./namenode ./internal/journal/zk
	$(NEW_ZOOKEEPER) $(GOTEST) -count=1 -timeout 15m -v -tags torture ./test/torture -minutes 0.5 -seed $(SEED)

sweeps: ## run the part of test-full that only computes: the sweeps and the simulated fleets
	@scripts/setup test-full
	LEASEFS_TEST_SIZE=full $(SMALL) $(GOTEST) -count=1 -timeout 30m $(FULL_PKGS)
	go -C scripts/tools/plot test .
	$(GOTEST) -count=1 -timeout 30m -v -run '^TestWorlds$$' ./test/sim -seed $(SEED) -length 1h -sparse
	LEASEFS_TEST_SIZE=full $(GOTEST) -count=1 -timeout 30m -v -run "^TestADayIsRestored$$/^seed_$$(($(SEED) % 2))$$" ./test/sim # one of two days

soak: ## run worlds of sim in which things fail, for HOURS or SEEDS of them from SEED on, and show which faults met; Ctrl-C ends it after the present one
	@scripts/setup test
	$(GOTEST) -count=1 -timeout 0 -v -run '^TestWorlds$$' ./test/sim -seed $(SEED) -seeds $(SEEDS) -hours $(HOURS) $(if $(SPARSE),-length 1h -sparse,-length 5m)

torture: ## run the clients and the checker of sim on real processes that are killed, stopped, cut off, short of room and wrong about the time, for MINUTES
	@scripts/setup torture
	$(NEW_ZOOKEEPER) $(GOTEST) -count=1 -timeout 0 -v -tags torture ./test/torture -minutes $(MINUTES) -seed $(SEED)

soak-real: ## the same for HOURS, while namenodes change between the last release and this one; sample all processes, see that none grows, and draw it
	scripts/soak-real $$(awk 'BEGIN { print 60 * $(HOURS) }') $(SEED)

mutants: ## build known faults into the product, one at a time, and see that the worlds of sim find each
	@scripts/setup test
	$(GOTEST) -count=1 -tags mutants -timeout 24m -run '^TestMutants$$' ./test/sim

race: ## run the tests of the concurrent packages, but for the longest, under the race detector
	@scripts/setup race
	CGO_ENABLED=1 $(SMALL) $(GOTEST) -race -timeout 15m -p $$(($$(nproc) + 1)) -skip '$(LONG)|$(LONG_FULL)' $(RACE_FLAGS) $(RACE_PKGS)

lint: ## check style, layers and common mistakes (.golangci.yml)
	@scripts/setup lint
	.cache/bin/golangci-lint run ./...
	cd test/experiments && ../../.cache/bin/golangci-lint run -c ../../.golangci.yml ./...

fuzz: ## run each fuzz test for FUZZTIME seconds
	@scripts/setup test
	scripts/fuzz $(FUZZTIME)

bench: ## run the Go benchmarks that match BENCH
	@scripts/setup test
	$(GOTEST) -run '^$$' -bench '$(BENCH)' -benchmem $(PKGS)

curves: ## measure how throughput and p99 change with workers, rate, files, leases and sessions, and draw it (an hour); scripts/bench-curves --quick shows that it works
	@scripts/setup build plot
	scripts/bench-curves

experiments: ## run the experiments of docs/EXPERIMENTS.md in small sizes; scripts/experiments runs them whole
	@scripts/experiments --quick

generate: ## generate Go and Python from the .proto files
	@scripts/setup generate
	cd proto && PATH="$(CURDIR)/.cache/bin:$$PATH" protoc -I . \
		--go_out=. --go_opt=paths=source_relative \
		--go-grpc_out=. --go-grpc_opt=paths=source_relative \
		$$(find . -name '*.proto' -printf '%P\n' | LC_ALL=C sort)
	PATH="$(CURDIR)/.cache/bin:$$PATH" protoc -I . --go_out=. --go_opt=paths=source_relative gateway/hdfs/hadoop/*.proto
	.cache/python/bin/python -m grpc_tools.protoc -I proto --python_out=python/src --pyi_out=python/src leasefs/v1/leasefs.proto

clean: ## remove what was built, the tools in .cache included
	rm -rf bin dist .cache
