// Command sbom lists the modules in a Go program, and Go's own library, as a CycloneDX document:
// what the linker wrote into the program (go version -m), and no more. Two runs print equal bytes.
//
//	sbom PROGRAM VERSION
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM VERSION")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(program, version string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	root := component(info.Main.Path, version)
	root.Type = cdx.ComponentTypeApplication
	std := component("std", info.GoVersion)
	std.PackageURL = "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")
	all := []cdx.Component{std}
	for _, m := range info.Deps {
		one, err := ofModule(m)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	var refs []string
	dependencies := []cdx.Dependency{{Ref: root.BOMRef}}
	for _, c := range all {
		refs = append(refs, c.BOMRef)
		dependencies = append(dependencies, cdx.Dependency{Ref: c.BOMRef})
	}
	dependencies[0].Dependencies = &refs
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &root}
	bom.Components, bom.Dependencies = &all, &dependencies
	return cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// ofModule is what was compiled for a module: where another replaces it, that.
func ofModule(m *debug.Module) (c cdx.Component, err error) {
	if m.Replace != nil {
		m = m.Replace
	}
	c = component(m.Path, m.Version)
	sum, known := strings.CutPrefix(m.Sum, "h1:")
	if !known { // a folder of the build
		return c, nil
	}
	raw, err := base64.StdEncoding.DecodeString(sum)
	if err != nil {
		return c, fmt.Errorf("the sum of %s: %w", m.Path, err)
	}
	c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
	return c, nil
}

func component(path, version string) cdx.Component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, Scope: cdx.ScopeRequired, PackageURL: purl}
}
