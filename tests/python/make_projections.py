"""Writes tests/data/projections.jsonl: points of reference systems and where PROJ puts them.

    pip install pyproj==3.7.2 && python tests/python/make_projections.py > tests/data/projections.jsonl

Without grids, as dedupd has none: where an authority publishes one, PROJ falls back to a Helmert transformation,
usually the one in the system's PROJ string. The tolerance says how far dedupd may be from that. How far either is
from the truth is another matter: by EPSG's estimate 2 m for the British and 1 to 1.5 m for the Swiss and Dutch grids.
"""

import json
import math

import pyproj

pyproj.network.set_network_enabled(False)

MILLIMETRE, CENTIMETRE, METRE = 0.001, 0.01, 1.0

# Code, tolerance in metres, places as (longitude, latitude).
SYSTEMS = [
    # Web Mercator, World Mercator, and maps of the whole Earth.
    (3857, MILLIMETRE, [(8.54, 47.37), (-179.9, 85.05), (179.9, -85.05), (-0.1, 51.5), (151.2, -33.87)]),
    (3395, MILLIMETRE, [(8.54, 47.37), (-70.66, -53.16), (100, 80)]),
    (4087, MILLIMETRE, [(8.54, 47.37), (-179.9, -89)]),
    (6933, MILLIMETRE, [(8.54, 47.37), (-179.9, -80)]),
    (8857, MILLIMETRE, [(8.54, 47.37), (-170, -80)]),
    # UTM, in and somewhat outside of its zones.
    (32632, MILLIMETRE, [(8.54, 47.37), (6.01, 0.01), (11.99, 83.9), (3.0, 60.0), (15.0, 45.0)]),
    (32733, MILLIMETRE, [(15.0, -22.5), (12.01, -79.9), (17.99, -0.01)]),
    (25832, MILLIMETRE, [(8.54, 47.37), (11.57, 48.14)]),
    (23031, 10.0, [(2.17, 41.39)]),
    # National grids: Switzerland (LV95, LV03), Britain, France, the Netherlands, Belgium, Finland, Sweden, Poland,
    # Ireland, Germany (DHDN zone 3), Czechia (east-north), New Zealand, Singapore, Brazil, South Africa (westings).
    (2056, MILLIMETRE, [(7.438632, 46.951083), (8.54, 47.37), (10.47, 46.6), (6.02, 46.2)]),
    (21781, MILLIMETRE, [(7.438632, 46.951083), (8.54, 47.37), (10.47, 46.6), (6.02, 46.2)]),
    (27700, CENTIMETRE, [(-0.1276, 51.5072), (-3.19, 55.95), (-7.0, 57.8), (1.7, 52.6)]),
    (2154, MILLIMETRE, [(2.349, 48.8647), (-4.49, 48.39), (9.45, 42.7)]),
    (28992, CENTIMETRE, [(4.9, 52.37), (6.96, 53.1), (3.6, 51.45)]),
    (31370, MILLIMETRE, [(4.35, 50.85)]),
    (3067, MILLIMETRE, [(24.94, 60.17), (31.5, 62.9)]),
    (3006, MILLIMETRE, [(18.07, 59.33), (11.0, 58.0)]),
    (2180, MILLIMETRE, [(21.01, 52.23), (14.2, 53.9)]),
    (29903, CENTIMETRE, [(-6.26, 53.35)]),
    (31467, METRE, [(9.18, 48.78), (9.99, 53.55)]),
    (5514, 15.0, [(14.42, 50.09)]),
    (2193, MILLIMETRE, [(174.76, -36.85), (168.66, -45.03)]),
    (3414, MILLIMETRE, [(103.85, 1.29)]),
    (5880, MILLIMETRE, [(-46.63, -23.55)]),
    (2053, MILLIMETRE, [(28.05, -26.2)]),
    # Europe, the poles, the conterminous United States, Alaska, Canada.
    (3035, CENTIMETRE, [(8.54, 47.37), (-9.1, 38.7), (28.9, 69.0)]),
    (3034, MILLIMETRE, [(8.54, 47.37), (28.9, 69.0)]),
    (3031, MILLIMETRE, [(0.0, -75.0), (166.67, -77.85), (-60.0, -62.0)]),
    (3413, MILLIMETRE, [(-45.0, 70.0), (15.6, 78.2)]),
    (5041, MILLIMETRE, [(0.5, 89.9), (120.0, 84.0)]),
    (5070, MILLIMETRE, [(-104.99, 39.74), (-80.19, 25.76)]),
    (3338, MILLIMETRE, [(-149.9, 61.22)]),
    (3347, MILLIMETRE, [(-75.7, 45.42), (-123.12, 49.28)]),
    # US survey feet (New York, California zone 5) and international feet (Michigan).
    (2263, MILLIMETRE, [(-74.006, 40.7128), (-72.0, 41.0)]),
    (2229, MILLIMETRE, [(-118.24, 34.05)]),
    (2253, MILLIMETRE, [(-84.55, 42.73)]),
    # Geographic systems: of WGS 84, as good as, and of other datums and meridians.
    (4326, 0.0, [(8.54, 47.37), (-180.0, -89.5)]),
    (4258, 0.0, [(8.54, 47.37)]),
    (4269, 0.0, [(-104.99, 39.74)]),
    (4277, CENTIMETRE, [(-0.1276, 51.5072)]),
    (4289, CENTIMETRE, [(4.9, 52.37)]),
    (4313, MILLIMETRE, [(4.35, 50.85)]),
]

EARTH_RADIUS_M = 6371008.8


def distance_m(a, b):
    (lon_a, lat_a), (lon_b, lat_b) = [[math.radians(deg) for deg in place] for place in (a, b)]
    h = math.sin((lat_b - lat_a) / 2) ** 2
    h += math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(h))


for epsg, tolerance_m, places in SYSTEMS:
    crs = pyproj.CRS.from_epsg(epsg)
    there = pyproj.Transformer.from_crs(4326, crs, always_xy=True)
    back = pyproj.Transformer.from_crs(crs, 4326, always_xy=True)
    for place in places:
        x, y = (round(value, 8 if crs.is_geographic else 3) for value in there.transform(*place))
        longitude, latitude = (round(degrees, 10) for degrees in back.transform(x, y))
        # Both ways the same operation, or the vector is worth nothing.
        assert distance_m(place, (longitude, latitude)) < 0.01, (epsg, place, longitude, latitude)
        vector = {"epsg": epsg, "x": x, "y": y, "latitude": latitude, "longitude": longitude}
        print(json.dumps(vector | {"tolerance_m": tolerance_m}))
