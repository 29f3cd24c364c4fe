//! Distance on the globe, where a link states no latency.

/// Speed of light in fibre.
pub const KM_PER_MS: f64 = 200.0;

/// Mean radius of the earth (IUGG), km.
const EARTH_RADIUS_KM: f64 = 6371.0088;

/// Great-circle distance in km between two (latitude, longitude) pairs in degrees, by the haversine formula.
pub fn great_circle_km(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (lat_a, lat_b) = (a.0.to_radians(), b.0.to_radians());
    let half_lat = (lat_b - lat_a) / 2.0;
    let half_lon = (b.1 - a.1).to_radians() / 2.0;
    let h = half_lat.sin().powi(2) + lat_a.cos() * lat_b.cos() * half_lon.sin().powi(2);
    2.0 * EARTH_RADIUS_KM * h.clamp(0.0, 1.0).sqrt().asin()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_york_to_chicago_is_1145_km() {
        let km = great_circle_km((40.71427, -74.00597), (41.85003, -87.65005));
        assert!((km - 1145.0).abs() < 5.0, "{km}");
    }

    #[test]
    fn a_quarter_of_the_equator_is_10007_km() {
        let km = great_circle_km((0.0, 0.0), (0.0, 90.0));
        assert!((km - 10007.56).abs() < 0.1, "{km}");
    }
}
