//go:build race

package leasemanager

const underRace = true
