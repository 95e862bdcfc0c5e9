package command

import (
	"crypto/x509"
	"fmt"
	"os"
)

// CertPool returns the certificate authorities in a file. In errors, the parameter setting names the setting with
// the file.
func CertPool(setting, file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, Unreadable(setting, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s: %s has no certificate in PEM", setting, file)
	}
	return pool, nil
}
