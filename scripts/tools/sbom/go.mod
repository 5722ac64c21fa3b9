// Lists what is in a program, for releases. A module of its own: leasefs needs nothing of it.
module github.com/leasefs/leasefs/scripts/tools/sbom

go 1.26.0

require github.com/CycloneDX/cyclonedx-go v0.9.3
